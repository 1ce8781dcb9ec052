//! The Kubernetes API server inside a test: real validation, defaulting, admission, watches and garbage
//! collection, without a process, a port or a file.
//!
//! ```no_run
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kube::{Api, api::PostParams};
//! use pintle_testing::Server;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let server = Server::start().await?;
//! let maps: Api<ConfigMap> = Api::namespaced(server.client(), "default");
//! maps.create(&PostParams::default(), &ConfigMap::default()).await?;
//! # Ok(())
//! # }
//! ```
//!
//! Each server is alone: several can run in one process. Dropping one ends its threads, tasks and connections,
//! and gives its memory and file descriptors back. It has a thread of its own, so it may be shared by tests with
//! runtimes of their own.

mod crds;
mod in_memory;

use std::path::Path;
use std::sync::Arc;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config, CustomResourceExt};
use pintle::{HostOptions, HostedServer};

use self::in_memory::InMemory;

/// Why a server cannot be started or used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// In the words of the server, such as a wrong flag.
    #[error("the server cannot be started: {0}")]
    Start(String),
    #[error("{path}: {why}")]
    File { path: String, why: String },
    #[error(transparent)]
    Kube(#[from] kube::Error),
    #[error(transparent)]
    Kubeconfig(#[from] kube::config::KubeconfigError),
    #[error("CustomResourceDefinition {name} is not established after {seconds} s: {conditions}")]
    NotEstablished { name: String, seconds: u64, conditions: String },
    #[error("no port is open: start the server with `Server::builder().tls()`")]
    NoPort,
}

/// A running server; dropping it ends it.
pub struct Server {
    hosted: Arc<HostedServer>,
}

impl Server {
    /// A server without a port, with its objects in memory; returns when it is ready. Namespaces end and
    /// owned objects are collected, as in a cluster.
    pub async fn start() -> Result<Self, Error> {
        Self::builder().start().await
    }

    pub fn builder() -> Builder {
        Builder::default()
    }

    /// A client of the administrator, over a connection in memory. It belongs to the runtime that it is made
    /// on, and its calls fail once the server is gone.
    pub fn client(&self) -> Client {
        Client::new(InMemory::new(&self.hosted), "default")
    }

    /// How to reach the server over TLS, as the administrator, also from other processes.
    pub async fn config(&self) -> Result<Config, Error> {
        let kubeconfig = Kubeconfig::from_yaml(self.kubeconfig()?)?;
        Ok(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)
    }

    /// The same as a file for kubectl and others.
    pub fn kubeconfig(&self) -> Result<&str, Error> {
        self.hosted.kubeconfig().ok_or(Error::NoPort)
    }

    /// Installs the definition of a type and waits until its objects are served.
    pub async fn install<T: CustomResourceExt>(&self) -> Result<(), Error> {
        self.install_crd(&T::crd()).await
    }

    /// Installs a definition, or replaces it, and waits until its objects are served.
    pub async fn install_crd(&self, crd: &CustomResourceDefinition) -> Result<(), Error> {
        let crd = serde_json::to_value(crd).map_err(kube::Error::SerdeError)?;
        crds::install(&self.client(), &crd).await
    }

    /// Installs all definitions in a file or in the files of a directory (`.yaml`, `.yml`, `.json`), and waits
    /// until their objects are served. Other objects in them are left out.
    pub async fn install_files(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let client = self.client();
        for crd in crds::read(path.as_ref())? {
            crds::install(&client, &crd).await?;
        }
        Ok(())
    }
}

/// How a server is started.
#[derive(Debug, Clone, Default)]
pub struct Builder {
    host: HostOptions,
    crds: Vec<CustomResourceDefinition>,
    files: Vec<std::path::PathBuf>,
}

impl Builder {
    /// A flag of the command line, such as `--feature-gates=Name=true`.
    #[must_use]
    pub fn flag(mut self, flag: impl Into<String>) -> Self {
        self.host.flags.push(flag.into());
        self
    }

    /// Opens a port on loopback with TLS, for [`Server::config`] and [`Server::kubeconfig`].
    #[must_use]
    pub fn tls(mut self) -> Self {
        self.host.opens_port = true;
        self
    }

    /// Installs the definition of a type at the start.
    #[must_use]
    pub fn crd<T: CustomResourceExt>(mut self) -> Self {
        self.crds.push(T::crd());
        self
    }

    /// Installs the definitions of a file or a directory at the start.
    #[must_use]
    pub fn crd_files(mut self, path: impl AsRef<Path>) -> Self {
        self.files.push(path.as_ref().to_owned());
        self
    }

    /// Returns when the server is ready, and the definitions are served.
    pub async fn start(self) -> Result<Server, Error> {
        let hosted = HostedServer::start(self.host).await.map_err(Error::Start)?;
        let server = Server { hosted: Arc::new(hosted) };
        for crd in &self.crds {
            server.install_crd(crd).await?;
        }
        for path in &self.files {
            server.install_files(path).await?;
        }
        Ok(server)
    }
}
