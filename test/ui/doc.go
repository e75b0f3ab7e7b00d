// Package ui looks at the page of kubectl clusterset ui with a real browser, on real control planes: what it shows of a
// cluster that is killed, who gets it, whether everybody can read it, and how long hundreds of clusters take.
package ui
