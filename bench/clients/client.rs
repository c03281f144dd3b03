// rskafka: `client bootstrap scenario topic count library`.
use rskafka::client::partition::{Compression, OffsetAt, PartitionClient, UnknownTopicHandling};
use rskafka::client::ClientBuilder;
use rskafka::record::Record;
use std::collections::BTreeMap;
use std::error::Error;

const A_REQUEST: usize = 16;

async fn produce(partition: &PartitionClient, count: usize) -> Result<usize, Box<dyn Error>> {
    for first in (0..count).step_by(A_REQUEST) {
        let records = (first..count.min(first + A_REQUEST)).map(|index| Record {
            key: None,
            value: Some(format!("{index:01000}").into_bytes()),
            headers: BTreeMap::new(),
            timestamp: chrono::Utc::now(),
        });
        partition.produce(records.collect(), Compression::NoCompression).await?;
    }
    Ok(count)
}

async fn consume(partition: &PartitionClient, count: usize) -> Result<usize, Box<dyn Error>> {
    let mut offset = 0;
    while (offset as usize) < count {
        let (records, _) = partition.fetch_records(offset, 1..100_000, 1_000).await?;
        offset = records.last().map_or(offset, |last| last.offset + 1);
    }
    Ok(offset as usize)
}

async fn said(words: &[String]) -> Result<String, Box<dyn Error>> {
    let brokers = words[1].split(',').map(str::to_owned).collect();
    let (topic, count) = (&words[3], words[4].parse()?);
    let client = ClientBuilder::new(brokers).client_id(topic.as_str()).build().await?;
    let partition = client.partition_client(topic, 0, UnknownTopicHandling::Retry).await?;
    let records = match words[2].as_str() {
        "consume" => consume(&partition, count).await?,
        "admin" => {
            let (controller, made) = (client.controller_client()?, format!("{topic}-made"));
            controller.create_topic(&made, 1, 1, 5_000).await?;
            client.list_topics().await?;
            partition.get_offset(OffsetAt::Latest).await?;
            controller.delete_topic(&made, 5_000).await?;
            return Ok("{\"steps\": {\"all\": \"ok\"}}".to_owned());
        }
        _ => produce(&partition, count).await?,
    };
    Ok(format!("{{\"records\": {records}}}"))
}

#[tokio::main]
async fn main() {
    let words: Vec<String> = std::env::args().collect();
    println!("{}", said(&words).await.unwrap_or_else(|error| format!("{{\"error\": {:?}}}", error.to_string())));
}
