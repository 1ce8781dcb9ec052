//go:build e2e

// Package e2e names the programs that this module is there to build: Kubernetes' end-to-end tests, the runner that
// spreads them over processes, and a plugin that the tests of kubectl need. Nothing imports it.
package e2e

import (
	_ "github.com/onsi/ginkgo/v2/ginkgo"
	_ "k8s.io/kubernetes/cmd/kubectl-convert"
	_ "k8s.io/kubernetes/test/e2e"
)
