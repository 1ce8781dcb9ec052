//! What a server in a test costs: `cargo run --release -p pintle-testing --example start_many [servers]`.

use std::time::Instant;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::PostParams;
use pintle_testing::Server;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let servers = std::env::args().nth(1).map_or(Ok(100), |text| text.parse::<usize>())?;
    let map = ConfigMap::default();
    let mut map = map;
    map.metadata.generate_name = Some("a-".to_owned());
    for round in 1..=5 {
        let began = Instant::now();
        let server = Server::start().await?;
        let started = began.elapsed();
        let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
        maps.create(&PostParams::default(), &map).await?;
        let used = began.elapsed();
        let before = Instant::now();
        for _ in 0..1000 {
            maps.create(&PostParams::default(), &map).await?;
        }
        let each = before.elapsed() / 1000;
        let before = Instant::now();
        drop(server);
        println!(
            "{round}: ready {started:?}, first object {used:?}, create {each:?}, drop {:?}",
            before.elapsed()
        );
    }
    println!("{} MB with none", resident_megabytes()?);
    let (began, mut running) = (Instant::now(), Vec::new());
    for _ in 0..servers {
        let server = Server::start().await?;
        let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
        maps.create(&PostParams::default(), &map).await?;
        running.push(server);
    }
    println!("{servers} servers: {:?}, {} MB", began.elapsed(), resident_megabytes()?);
    let before = Instant::now();
    drop(running);
    println!("dropped: {:?}, {} MB", before.elapsed(), resident_megabytes()?);
    Ok(())
}

fn resident_megabytes() -> Result<u64, Box<dyn std::error::Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? / 1024)
}
