// Package words checks the language of the repository: the words that docs/glossary.md excludes, the width of lines,
// and the length of sentences in documents. It does not check whether a text is right or clear.
package words
