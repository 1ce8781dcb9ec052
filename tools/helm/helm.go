//go:build tools

// Package tools pins the published helm 4, a client for the tests.
package tools

import _ "helm.sh/helm/v4/cmd/helm"
