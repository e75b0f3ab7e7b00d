// Package ipam is the hub's carving of blocks (DESIGN §5, SPEC V2) as a slow and obvious program. It shares only
// the types of input and
// result with controllers/decide/ipam.
package ipam
