// rskafka: `client bootstrap scenario topic count library`.
use chrono::Utc;
use rskafka::client::partition::{Compression, OffsetAt, PartitionClient, UnknownTopicHandling};
use rskafka::client::ClientBuilder;
use rskafka::record::Record;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const A_REQUEST: usize = 16;

async fn produce(partition: &PartitionClient, count: usize, a_request: usize, pause: Duration) -> Result<usize, String> {
    for first in (0..count).step_by(a_request) {
        let records = (first..count.min(first + a_request)).map(|index| Record {
            key: None,
            value: Some(format!("{index:01000}").into_bytes()),
            headers: BTreeMap::new(),
            timestamp: Utc::now(),
        });
        let sent = partition.produce(records.collect(), Compression::NoCompression).await;
        sent.map_err(|error| error.to_string())?;
        tokio::time::sleep(pause).await;
    }
    Ok(count)
}

async fn consume(partition: &PartitionClient, count: usize) -> Result<usize, String> {
    let mut offset = 0;
    while (offset as usize) < count {
        let fetched = partition.fetch_records(offset, 1..100_000, 1_000).await;
        let (records, _) = fetched.map_err(|error| error.to_string())?;
        offset = records.last().map_or(offset, |last| last.offset + 1);
    }
    Ok(offset as usize)
}

fn step<T, E>(name: &str, outcome: Result<T, E>) -> String {
    format!("\"{name}\": \"{}\"", if outcome.is_ok() { "ok" } else { "error" })
}

async fn said(words: &[String]) -> Result<String, String> {
    let brokers = words[1].split(',').map(str::to_owned).collect();
    let (topic, count) = (&words[3], words[4].parse().unwrap());
    let client = ClientBuilder::new(brokers).client_id(topic.as_str()).build().await.map_err(|e| e.to_string())?;
    let found = client.partition_client(topic, 0, UnknownTopicHandling::Retry).await;
    let partition = found.map_err(|error| error.to_string())?;
    let begin = Instant::now();
    let records = match words[2].as_str() {
        "consume" => consume(&partition, count).await?,
        "leader" => produce(&partition, count, 1, Duration::from_millis(10)).await?,
        "admin" => {
            let controller = client.controller_client().map_err(|error| error.to_string())?;
            let made = format!("{topic}-made");
            let steps = [
                step("create_topic", controller.create_topic(&made, 1, 1, 5_000).await),
                step("list_topics", client.list_topics().await),
                step("end_offsets", partition.get_offset(OffsetAt::Latest).await),
                step("delete_topic", controller.delete_topic(&made, 5_000).await),
            ];
            return Ok(format!("{{\"steps\": {{{}}}}}", steps.join(", ")));
        }
        _ => produce(&partition, count, A_REQUEST, Duration::ZERO).await?,
    };
    Ok(format!("{{\"records\": {records}, \"seconds\": {}}}", begin.elapsed().as_secs_f64()))
}

#[tokio::main]
async fn main() {
    let words: Vec<String> = std::env::args().collect();
    let outcome = tokio::time::timeout(Duration::from_secs(60), said(&words)).await;
    match outcome.unwrap_or(Err("timed out".to_owned())) {
        Ok(line) => println!("{line}"),
        Err(error) => println!("{{\"error\": {:?}}}", error.split(':').next().unwrap_or("error")),
    }
}
