//! rskafka: produce with each codec, read it without a group, read behind the end, ask for a
//! topic that is not there.
//!
//!     rskafka BOOTSTRAP TOPIC
use std::collections::BTreeMap;
use std::env::args;

use chrono::Utc;
use rskafka::client::partition::{Compression, OffsetAt, UnknownTopicHandling};
use rskafka::client::ClientBuilder;
use rskafka::record::Record;

const RECORDS: i64 = 20;

fn record(codec: &str, number: i64) -> Record {
    Record {
        key: Some(format!("key-{number}").into_bytes()),
        value: Some(format!("record {number} ").repeat(4).into_bytes()),
        headers: BTreeMap::from([("codec".to_owned(), codec.as_bytes().to_vec())]),
        timestamp: Utc::now(),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = args().skip(1).collect();
    let brokers: Vec<String> = arguments[0].split(',').map(str::to_owned).collect();
    let topic = arguments[1].clone();
    let client = ClientBuilder::new(brokers).client_id("rskafka").build().await?;
    let partition = client.partition_client(topic, 0, UnknownTopicHandling::Error).await?;

    let codecs = [
        ("none", Compression::NoCompression),
        ("gzip", Compression::Gzip),
        ("snappy", Compression::Snappy),
        ("lz4", Compression::Lz4),
        ("zstd", Compression::Zstd),
    ];
    for (name, codec) in codecs {
        let records = (0..RECORDS).map(|number| record(name, number)).collect();
        partition.produce(records, codec).await?;
    }

    let end = partition.get_offset(OffsetAt::Latest).await?;
    let mut offset = partition.get_offset(OffsetAt::Earliest).await?;
    while offset < end {
        let (records, _) = partition.fetch_records(offset, 1..1_000_000, 1_000).await?;
        offset = records.last().ok_or("no records before the end")?.offset + 1;
    }

    let behind = partition.fetch_records(end + 1_000, 1..1_000_000, 1_000).await;
    println!("{}", behind.err().ok_or("there are records behind the end")?);
    let missing = "no-such-topic".to_owned();
    let unknown = client.partition_client(missing, 0, UnknownTopicHandling::Error).await;
    println!("{}", unknown.err().ok_or("there is such a topic")?);
    Ok(())
}
