//! The command line: what to run, against which servers, with which credentials.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};

use crate::cluster::Load;

/// Printed by `pintle-bench help`.
pub(crate) const USAGE: &str = "\
pintle-bench: the same work on any Kubernetes API server, and what it cost

  pintle-bench run --server NAME=URL [credentials] [--pid P]... [--server NAME=URL ...] [options]
      Credentials and --pid belong to the --server before them; with two servers the ratios are
      printed as well.
      --kubeconfig FILE | --ca FILE [--cert FILE --key FILE | --token TOKEN]   without --ca or
                        --kubeconfig the server's certificate is not verified
      --pid P           a process whose CPU and memory count as the server's (repeatable)
      --scenario A,B    only these (a trailing * matches a prefix); default: all
      --pods N          pods behind the large lists (default 10000, at least 1000)
      --seconds N       time cap per scenario (default 10)
      --watchers N      watchers of the fan-out scenarios (default 500)
      --json FILE       write the results

  pintle-bench fairness --server NAME=URL [credentials] [--pid P]... [options]
      One client floods the server with full lists; prints what a second client, a node's heartbeats
      and a leader election notice. The credentials must be allowed to impersonate.
      --pods N          objects of 2 KB in the list (default 10000, at least 1000)
      --connections N   of the flooding client (default 500)
      --seconds N       time of each phase (default 10)

  pintle-bench cluster --server NAME=URL [credentials] [--pid P]... --nodes N[,N...] [options]
      Simulate the API load of a cluster: hollow nodes, controllers, a scheduler, pods that come and
      go, people and a GitOps client. Each number of nodes is a stage that adds to the one before;
      the run ends with the first stage that misses Kubernetes' service level objectives.
      --pods-per-node N pods that stay (default 30)
      --churn N         pods created per second (default 5)
      --slice-updates N endpoint slices changed per second, which all nodes watch (default 1)
      --seconds N       time of each stage (default 60)

  pintle-bench start --server 'CMD ARGS...' [--name NAME] (--url URL | --kubeconfig FILE) [options]
      Launch the command again and again and measure the time to /readyz. {n} in the command is
      replaced by the number of the launch, so that each one can have its own data directory.
      --runs N          launches (default 5)
      --settle N        seconds from ready to the memory reading (default 3)
      --json FILE       write the results

  pintle-bench compare BASELINE.json CANDIDATE.json
      Print the ratio of each row as a Markdown table; above 1 the candidate is better.

  pintle-bench scenarios
      List the scenarios by name.
";

/// What `run` was asked to do.
#[derive(Debug)]
pub(crate) struct RunArgs {
    pub(crate) servers: Vec<ServerArgs>,
    /// Names or `prefix*`; empty means all.
    pub(crate) scenarios: Vec<String>,
    pub(crate) pods: usize,
    pub(crate) seconds: u64,
    pub(crate) watchers: usize,
    /// Of the flooding client of `fairness`.
    pub(crate) connections: usize,
    pub(crate) json: Option<PathBuf>,
}

/// A server to put the work on.
#[derive(Debug, Default)]
pub(crate) struct ServerArgs {
    pub(crate) name: String,
    pub(crate) url: String,
    pub(crate) credentials: CredentialArgs,
    pub(crate) pids: Vec<u32>,
}

/// Where the credentials come from; empty means anonymous and unverified.
#[derive(Debug, Default, Clone)]
pub(crate) struct CredentialArgs {
    pub(crate) kubeconfig: Option<PathBuf>,
    pub(crate) ca: Option<PathBuf>,
    pub(crate) cert: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
    pub(crate) token: Option<String>,
}

/// What `cluster` was asked to do.
#[derive(Debug)]
pub(crate) struct ClusterArgs {
    pub(crate) servers: Vec<ServerArgs>,
    /// Of each stage, growing.
    pub(crate) nodes: Vec<usize>,
    pub(crate) seconds: u64,
    pub(crate) load: Load,
}

/// What `start` was asked to do.
#[derive(Debug)]
pub(crate) struct StartArgs {
    pub(crate) name: String,
    pub(crate) command: String,
    pub(crate) url: Option<String>,
    pub(crate) credentials: CredentialArgs,
    pub(crate) runs: usize,
    pub(crate) settle_seconds: u64,
    pub(crate) json: Option<PathBuf>,
}

/// The smallest data set: what the scenarios "behind 1 000 objects" need.
pub(crate) const PODS_MIN: usize = 1000;

pub(crate) fn run(arguments: &[String]) -> Result<RunArgs> {
    let mut parsed = RunArgs {
        servers: Vec::new(),
        scenarios: Vec::new(),
        pods: 10_000,
        seconds: 10,
        watchers: 500,
        connections: 500,
        json: None,
    };
    for flag in flags(arguments) {
        let (name, value) = flag?;
        match name.as_str() {
            "server" => {
                let (name, url) = value.split_once('=').context("--server wants NAME=URL")?;
                parsed.servers.push(ServerArgs {
                    name: name.to_owned(),
                    url: url.trim_end_matches('/').to_owned(),
                    ..ServerArgs::default()
                });
            }
            "pid" => last_server(&mut parsed)?.pids.push(number(&name, &value)?),
            "scenario" => parsed.scenarios.extend(value.split(',').map(str::to_owned)),
            "pods" => parsed.pods = number(&name, &value)?,
            "seconds" => parsed.seconds = number(&name, &value)?,
            "connections" => parsed.connections = number(&name, &value)?,
            "watchers" => parsed.watchers = number(&name, &value)?,
            "json" => parsed.json = Some(value.into()),
            _ => {
                if !last_server(&mut parsed)?.credentials.take(&name, &value) {
                    bail!("unknown flag --{name}; see pintle-bench help");
                }
            }
        }
    }
    if parsed.servers.is_empty() {
        bail!("run needs at least one --server NAME=URL");
    }
    if parsed.pods < PODS_MIN {
        bail!("--pods must be at least {PODS_MIN}");
    }
    Ok(parsed)
}

pub(crate) fn cluster(arguments: &[String]) -> Result<ClusterArgs> {
    let mut load = Load { pods_per_node: 30, churn: 5.0, slice_updates: 1.0 };
    let (mut nodes, mut seconds, mut rest) = (Vec::new(), 60, Vec::new());
    for flag in flags(arguments) {
        let (name, value) = flag?;
        match name.as_str() {
            "nodes" => {
                let stages = value.split(',').map(|stage| number(&name, stage));
                nodes = stages.collect::<Result<_>>()?;
            }
            "pods-per-node" => load.pods_per_node = number(&name, &value)?,
            "churn" => load.churn = number(&name, &value)?,
            "slice-updates" => load.slice_updates = number(&name, &value)?,
            "seconds" => seconds = number(&name, &value)?,
            _ => rest.push(format!("--{name}={value}")),
        }
    }
    if nodes.is_empty() || !nodes.is_sorted() || nodes[0] == 0 {
        bail!("cluster needs --nodes with numbers that grow");
    }
    Ok(ClusterArgs { servers: run(&rest)?.servers, nodes, seconds, load })
}

pub(crate) fn start(arguments: &[String]) -> Result<StartArgs> {
    let mut parsed = StartArgs {
        name: "server".to_owned(),
        command: String::new(),
        url: None,
        credentials: CredentialArgs::default(),
        runs: 5,
        settle_seconds: 3,
        json: None,
    };
    for flag in flags(arguments) {
        let (name, value) = flag?;
        match name.as_str() {
            "server" => parsed.command = value,
            "name" => parsed.name = value,
            "url" => parsed.url = Some(value.trim_end_matches('/').to_owned()),
            "runs" => parsed.runs = number(&name, &value)?,
            "settle" => parsed.settle_seconds = number(&name, &value)?,
            "json" => parsed.json = Some(value.into()),
            _ => {
                if !parsed.credentials.take(&name, &value) {
                    bail!("unknown flag --{name}; see pintle-bench help");
                }
            }
        }
    }
    if parsed.command.is_empty() {
        bail!("start needs --server 'CMD ARGS...'");
    }
    if parsed.runs == 0 {
        bail!("--runs must be at least 1");
    }
    if parsed.url.is_none() && parsed.credentials.kubeconfig.is_none() {
        bail!("start needs --url or --kubeconfig to know where the server will listen");
    }
    Ok(parsed)
}

impl CredentialArgs {
    /// Keeps the flag if it is about credentials; says whether it was.
    fn take(&mut self, name: &str, value: &str) -> bool {
        match name {
            "kubeconfig" => self.kubeconfig = Some(value.into()),
            "ca" => self.ca = Some(value.into()),
            "cert" => self.cert = Some(value.into()),
            "key" => self.key = Some(value.into()),
            "token" => self.token = Some(value.to_owned()),
            _ => return false,
        }
        true
    }
}

fn last_server(parsed: &mut RunArgs) -> Result<&mut ServerArgs> {
    parsed.servers.last_mut().context("credentials and --pid come after their --server")
}

fn number<T: std::str::FromStr>(name: &str, value: &str) -> Result<T> {
    value.parse().ok().with_context(|| format!("--{name} wants a number, not {value:?}"))
}

/// `--name value` and `--name=value`, in order.
fn flags(arguments: &[String]) -> impl Iterator<Item = Result<(String, String)>> + '_ {
    let mut rest = arguments.iter();
    std::iter::from_fn(move || {
        let argument = rest.next()?;
        let Some(flag) = argument.strip_prefix("--") else {
            return Some(Err(anyhow::anyhow!("unexpected argument {argument:?}")));
        };
        if let Some((name, value)) = flag.split_once('=') {
            return Some(Ok((name.to_owned(), value.to_owned())));
        }
        let Some(value) = rest.next() else {
            return Some(Err(anyhow::anyhow!("--{flag} wants a value")));
        };
        Some(Ok((flag.to_owned(), value.clone())))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn credentials_belong_to_the_server_before_them() {
        let parsed = run(&words(
            "--server a=https://h:1/ --token x --pid 7 --pid=8 --server b=https://h:2 --ca c.crt --pods 2000",
        ))
        .unwrap();
        let [a, b] = &parsed.servers[..] else { panic!("two servers") };
        assert_eq!(
            (a.name.as_str(), a.url.as_str(), &a.pids[..]),
            ("a", "https://h:1", &[7, 8][..])
        );
        assert_eq!(a.credentials.token.as_deref(), Some("x"));
        assert!(a.credentials.ca.is_none() && b.credentials.ca.is_some() && b.pids.is_empty());
        assert_eq!(parsed.pods, 2000);
    }

    #[test]
    fn stages_of_a_cluster_grow() {
        let line = "--server a=https://h:1 --token x --nodes 10,20 --churn 0.5";
        let parsed = cluster(&words(line)).unwrap();
        assert_eq!((&parsed.nodes[..], parsed.load.churn), (&[10, 20][..], 0.5));
        assert_eq!(parsed.servers[0].credentials.token.as_deref(), Some("x"));
        for line in ["--server a=u", "--server a=u --nodes 20,10", "--server a=u --nodes 0"] {
            let error = cluster(&words(line)).unwrap_err().to_string();
            assert_eq!(error, "cluster needs --nodes with numbers that grow", "{line}");
        }
    }

    #[test]
    fn bad_command_lines_say_what_is_wrong() {
        let cases = [
            ("", "run needs at least one --server NAME=URL"),
            ("--server x", "--server wants NAME=URL"),
            ("--pid 1", "credentials and --pid come after their --server"),
            ("--server a=u --pid x", "--pid wants a number, not \"x\""),
            ("--server a=u --pods 10", "--pods must be at least 1000"),
            ("--server a=u --frob 10", "unknown flag --frob; see pintle-bench help"),
            ("--server", "--server wants a value"),
            ("stray", "unexpected argument \"stray\""),
        ];
        for (line, expected) in cases {
            assert_eq!(run(&words(line)).unwrap_err().to_string(), expected, "{line}");
        }
    }
}
