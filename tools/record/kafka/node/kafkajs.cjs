// kafkajs: produce with each codec it has, consume in a group, ask for a topic that is not there.
// node kafkajs.cjs BOOTSTRAP TOPIC GROUP
const { Kafka, CompressionTypes, logLevel } = require("kafkajs");

const [bootstrap, topic, groupId] = process.argv.slice(2);
const kafka = (clientId) =>
  new Kafka({ clientId, brokers: bootstrap.split(","), logLevel: logLevel.NOTHING, retry: { retries: 1 } });

async function main() {
  for (const compression of [CompressionTypes.None, CompressionTypes.GZIP]) {
    const producer = kafka(`producer-${compression}`).producer({ idempotent: compression === CompressionTypes.GZIP });
    await producer.connect();
    const messages = Array.from({ length: 20 }, (_, i) => ({
      key: `key-${i}`, value: `record ${i} `.repeat(4), headers: { codec: `${compression}` },
    }));
    await producer.send({ topic, compression, messages });
    await producer.disconnect();
  }

  const consumer = kafka("consumer").consumer({ groupId });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  await new Promise((resolve, reject) => {
    let seen = 0;
    setTimeout(() => reject(new Error(`only ${seen}`)), 30_000).unref();
    consumer.run({ autoCommit: false, eachMessage: async ({ partition, message }) => {
      seen += 1;
      await consumer.commitOffsets([{ topic, partition, offset: `${BigInt(message.offset) + 1n}` }]);
      if (seen === 40) resolve();
    } });
  });
  await consumer.disconnect();

  const producer = kafka("lost").producer();
  await producer.connect();
  await producer.send({ topic: "no-such-topic", messages: [{ value: "value" }] }).then(
    () => { throw new Error("there is such a topic"); },
    (error) => console.log(error.message),
  );
  await producer.disconnect();
}

main().then(() => process.exit(0), (error) => { console.error(error); process.exit(1); });
