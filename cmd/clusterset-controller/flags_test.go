package main

import (
	"strings"
	"testing"
)

// TestAnAddressThatNobodyCanAskIsRefused: the agent would start, and answer nobody.
func TestAnAddressThatNobodyCanAskIsRefused(t *testing.T) {
	for address, ok := range map[string]bool{
		"": true, ":8082": true, "[::]:8082": true, "8082": false, ":0": false, ":http": false, ":70000": false,
	} {
		args := []string{"--hub-kubeconfig=hub", "--hub-namespace=set", "--answer-bind-address=" + address}
		_, _, err := parseAgent(args)
		if (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "--answer-bind-address") {
			t.Errorf("%q: %v", address, err)
		}
	}
}
