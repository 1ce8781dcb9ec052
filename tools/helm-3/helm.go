//go:build tools

// Package tools pins the published helm 3, a client for the tests.
package tools

import _ "helm.sh/helm/v3/cmd/helm"
