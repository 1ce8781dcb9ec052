//go:build peer

// Package peer names the two programs that this module is there to build: the real kube-apiserver
// and kube-controller-manager, for differential tests and benchmarks. Nothing imports it.
package peer

import (
	_ "k8s.io/kubernetes/cmd/kube-apiserver/app"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager/app"
)
