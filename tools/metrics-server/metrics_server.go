//go:build tools

// Package tools pins the published metrics-server, an aggregated API server for the tests.
package tools

import _ "sigs.k8s.io/metrics-server/cmd/metrics-server"
