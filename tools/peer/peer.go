//go:build peer

// Package peer names the programs that this module is there to build: the real kube-apiserver,
// kube-controller-manager and kube-scheduler, for tests and benchmarks. Nothing imports it.
package peer

import (
	_ "k8s.io/kubernetes/cmd/kube-apiserver/app"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	_ "k8s.io/kubernetes/cmd/kube-scheduler/app"
)
