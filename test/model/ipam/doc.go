// Package ipam is what DESIGN §5 and SPEC V1, V2, V5 ask of addresses as a slow and obvious program: sets of addresses, gone through one by
// one. It shares no code with controllers/decide/ipam but the types of input and result; where the text leaves room, README.md names the
// reading taken.
//
// It says who gets an address and who does not, and which where the text says which. Which of the free ones is the text's concern only as
// far as it must be the same again; that is tested, not predicted.
package ipam
