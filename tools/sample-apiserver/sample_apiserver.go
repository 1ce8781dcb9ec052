//go:build tools

// Package tools pins the published sample-apiserver, an aggregated API server for the tests.
package tools

import _ "k8s.io/sample-apiserver"
