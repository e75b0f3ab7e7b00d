package main

import (
	"strings"
	"testing"
)

// TestAnAddressThatNobodyCanAskIsRefused: the agent would start, and answer nobody or report that the DNS fails.
func TestAnAddressThatNobodyCanAskIsRefused(t *testing.T) {
	for flag, addresses := range map[string]map[string]bool{
		"--answer-bind-address": {
			"": true, ":8082": true, "[::]:8082": true, "8082": false, ":0": false, ":http": false, ":70000": false,
		},
		"--dns-server": {
			"": true, "10.96.0.10:53": true, "[fd00::a]:53": true,
			"10.96.0.10": false, "kube-dns:53": false, ":53": false, "10.96.0.10:0": false,
		},
	} {
		for address, ok := range addresses {
			_, _, err := parseAgent([]string{"--hub-kubeconfig=hub", "--hub-namespace=set", flag + "=" + address})
			if (err == nil) != ok || err != nil && !strings.Contains(err.Error(), flag) {
				t.Errorf("%s=%q: %v", flag, address, err)
			}
		}
	}
}
