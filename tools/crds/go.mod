module pintle/tools/crds

go 1.26.0

require (
	github.com/argoproj/argo-cd/v2 v2.13.2
	github.com/cert-manager/cert-manager v1.16.2
	github.com/crossplane/crossplane v1.18.2
	github.com/prometheus-operator/prometheus-operator v0.79.2
	istio.io/api v1.27.3
	k8s.io/pod-security-admission v0.36.4
	sigs.k8s.io/gateway-api v1.2.1
)
