//go:build !demo

package main

import (
	_ "time/tzdata" // the stock image has time zones, which expressions of the view plugin can name

	_ "github.com/coredns/coredns/core/plugin" // every stock plugin
)
