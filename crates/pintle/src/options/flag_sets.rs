//! The command lines with which others start a kube-apiserver: each has to start Pintle as well.

use super::{Options, tests::read};

/// kubeadm v1.36.
const KUBEADM: &str = "
    --advertise-address=192.0.2.10
    --allow-privileged=true
    --authorization-mode=Node,RBAC
    --client-ca-file=/etc/kubernetes/pki/ca.crt
    --enable-admission-plugins=NodeRestriction
    --enable-bootstrap-token-auth=true
    --etcd-cafile=/etc/kubernetes/pki/etcd/ca.crt
    --etcd-certfile=/etc/kubernetes/pki/apiserver-etcd-client.crt
    --etcd-keyfile=/etc/kubernetes/pki/apiserver-etcd-client.key
    --etcd-servers=https://127.0.0.1:2379
    --kubelet-client-certificate=/etc/kubernetes/pki/apiserver-kubelet-client.crt
    --kubelet-client-key=/etc/kubernetes/pki/apiserver-kubelet-client.key
    --kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname
    --proxy-client-cert-file=/etc/kubernetes/pki/front-proxy-client.crt
    --proxy-client-key-file=/etc/kubernetes/pki/front-proxy-client.key
    --requestheader-allowed-names=front-proxy-client
    --requestheader-client-ca-file=/etc/kubernetes/pki/front-proxy-ca.crt
    --requestheader-extra-headers-prefix=X-Remote-Extra-
    --requestheader-group-headers=X-Remote-Group
    --requestheader-username-headers=X-Remote-User
    --secure-port=6443
    --service-account-issuer=https://kubernetes.default.svc.cluster.local
    --service-account-key-file=/etc/kubernetes/pki/sa.pub
    --service-account-signing-key-file=/etc/kubernetes/pki/sa.key
    --service-cluster-ip-range=10.96.0.0/12
    --tls-cert-file=/etc/kubernetes/pki/apiserver.crt
    --tls-private-key-file=/etc/kubernetes/pki/apiserver.key
";

/// What kind adds to kubeadm's.
const KIND: &str = "--runtime-config=";

/// k3s with its embedded etcd; its own build also takes `--advertise-port`.
const K3S: &str = "
    --allow-privileged=true
    --anonymous-auth=false
    --api-audiences=https://kubernetes.default.svc.cluster.local,k3s
    --authorization-mode=Node,RBAC
    --bind-address=127.0.0.1
    --cert-dir=/var/lib/rancher/k3s/server/tls/temporary-certs
    --client-ca-file=/var/lib/rancher/k3s/server/tls/client-ca.crt
    --egress-selector-config-file=/var/lib/rancher/k3s/server/etc/egress-selector-config.yaml
    --enable-admission-plugins=NodeRestriction
    --enable-aggregator-routing=true
    --enable-bootstrap-token-auth=true
    --etcd-cafile=/var/lib/rancher/k3s/server/tls/etcd/server-ca.crt
    --etcd-certfile=/var/lib/rancher/k3s/server/tls/etcd/client.crt
    --etcd-keyfile=/var/lib/rancher/k3s/server/tls/etcd/client.key
    --etcd-servers=https://127.0.0.1:2379
    --kubelet-certificate-authority=/var/lib/rancher/k3s/server/tls/server-ca.crt
    --kubelet-client-certificate=/var/lib/rancher/k3s/server/tls/client-kube-apiserver.crt
    --kubelet-client-key=/var/lib/rancher/k3s/server/tls/client-kube-apiserver.key
    --kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname
    --profiling=false
    --proxy-client-cert-file=/var/lib/rancher/k3s/server/tls/client-auth-proxy.crt
    --proxy-client-key-file=/var/lib/rancher/k3s/server/tls/client-auth-proxy.key
    --requestheader-allowed-names=system:auth-proxy
    --requestheader-client-ca-file=/var/lib/rancher/k3s/server/tls/request-header-ca.crt
    --requestheader-extra-headers-prefix=X-Remote-Extra-
    --requestheader-group-headers=X-Remote-Group
    --requestheader-username-headers=X-Remote-User
    --secure-port=6444
    --service-account-issuer=https://kubernetes.default.svc.cluster.local
    --service-account-key-file=/var/lib/rancher/k3s/server/tls/service.key
    --service-account-signing-key-file=/var/lib/rancher/k3s/server/tls/service.current.key
    --service-cluster-ip-range=10.43.0.0/16
    --service-node-port-range=30000-32767
    --storage-backend=etcd3
    --tls-cert-file=/var/lib/rancher/k3s/server/tls/serving-kube-apiserver.crt
    --tls-cipher-suites=TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384
    --tls-private-key-file=/var/lib/rancher/k3s/server/tls/serving-kube-apiserver.key
";

/// controller-runtime's envtest.
const ENVTEST: &str = "
    --advertise-address=127.0.0.1
    --allow-privileged=true
    --authorization-mode=RBAC
    --bind-address=127.0.0.1
    --cert-dir=/tmp/k8s_test_framework
    --client-ca-file=/tmp/k8s_test_framework/client-cert-auth-ca.crt
    --disable-admission-plugins=ServiceAccount
    --etcd-servers=http://127.0.0.1:2379
    --secure-port=6443
    --service-account-issuer=https://127.0.0.1:6443/
    --service-account-key-file=/tmp/k8s_test_framework/sa-signer.crt
    --service-account-signing-key-file=/tmp/k8s_test_framework/sa-signer.key
    --service-cluster-ip-range=10.0.0.0/24
    --tls-cert-file=/tmp/k8s_test_framework/apiserver.crt
    --tls-private-key-file=/tmp/k8s_test_framework/apiserver.key
";

fn start(sets: &[&str]) -> Options {
    let args: Vec<&str> = sets.iter().flat_map(|set| set.split_whitespace()).collect();
    read(&args).unwrap_or_else(|errors| panic!("{errors:#?}"))
}

#[test]
fn kubeadms_flags_start_the_server() {
    let options = start(&[KUBEADM]);
    let front = options.authentication.request_header.expect("a front proxy");
    assert_eq!(front.headers.allowed_names, ["front-proxy-client"]);
    assert_eq!(front.headers.username_headers, ["x-remote-user"]);
    assert_eq!(front.headers.extra_prefixes, ["x-remote-extra-"]);
    assert_eq!(front.published.username_headers, ["X-Remote-User"]);
    assert!(options.authentication.bootstrap_tokens);
    assert_eq!(options.bind_address.to_string(), "0.0.0.0");
    assert_eq!(options.data_dir, None, "nothing is written");
    assert_eq!(options.warnings, Vec::<String>::new());
}

#[test]
fn kinds_flags_start_the_server() {
    start(&[KUBEADM, KIND]);
}

#[test]
fn k3ss_flags_start_the_server() {
    assert!(!start(&[K3S]).authentication.anonymous);
}

#[test]
fn envtests_flags_start_the_server() {
    assert!(start(&[ENVTEST]).authentication.request_header.is_none());
}
