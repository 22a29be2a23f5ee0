// kafka-node and no-kafka, which send message sets: each produces with no codec and gzip, and
// consumes all records in a group.
// node old.cjs BOOTSTRAP TOPIC
const { Admin, ConsumerGroup, KafkaClient, KeyedMessage, Producer } = require("kafka-node");
const noKafka = require("no-kafka");

const [bootstrap, topic] = process.argv.slice(2);
const [NONE, GZIP] = [0, 1];
const ROUNDS = [0, 1, 2, 3];
const call = (object, method, ...given) =>
  new Promise((resolve, reject) => object[method](...given, (error, value) => (error ? reject(error) : resolve(value))));
const within = (seconds, what) =>
  new Promise((_, reject) => setTimeout(() => reject(new Error(`no ${what}`)), seconds * 1000).unref());

async function produceWithKafkaNode() {
  const client = new KafkaClient({ kafkaHost: bootstrap, clientId: "kafka-node" });
  await new Promise((resolve) => client.once("ready", resolve));
  const admin = new Admin(client);
  await call(admin, "listGroups");
  const producer = new Producer(client, { requireAcks: 1, ackTimeoutMs: 1000 });
  for (const round of ROUNDS) {
    const messages = Array.from({ length: 10 }, (_, i) => new KeyedMessage(`key-${i}`, `record ${round} `.repeat(4)));
    await call(producer, "send", [{ topic, partition: round % 2, attributes: round < 2 ? NONE : GZIP, messages }]);
  }
  await call(client, "close");
}

async function produceWithNoKafka() {
  const producer = new noKafka.Producer({ connectionString: bootstrap, clientId: "no-kafka", logger: { logLevel: 0 } });
  await producer.init();
  for (const round of ROUNDS) {
    const values = Array.from({ length: 10 }, (_, i) => `record ${round} of ${i} `.repeat(4));
    const messages = values.map((value) => ({ topic, partition: round % 2, message: { key: value.slice(-8), value } }));
    const codec = round < 2 ? noKafka.COMPRESSION_NONE : noKafka.COMPRESSION_GZIP;
    const results = await producer.send(messages, { codec, batch: { size: 100_000, maxWait: 50 } });
    if (results.some((result) => result.error)) throw new Error(JSON.stringify(results));
  }
  await producer.end();
}

async function consumeWithKafkaNode(records) {
  const options = { kafkaHost: bootstrap, groupId: "kafka-node-group", id: "kafka-node-consumer", fromOffset: "earliest" };
  const group = new ConsumerGroup(options, [topic]);
  let seen = 0;
  await new Promise((resolve) => group.on("message", () => ++seen === records && resolve()));
  await call(group, "close", true);
  return seen;
}

async function consumeWithNoKafka(records) {
  const group = new noKafka.GroupConsumer({
    connectionString: bootstrap, clientId: "no-kafka-consumer", groupId: "no-kafka-group", idleTimeout: 200,
    startingOffset: noKafka.EARLIEST_OFFSET, logger: { logLevel: 0 },
  });
  let seen = 0;
  await new Promise((resolve) => group.init([{
    subscriptions: [topic],
    handler: async (set, name, partition) => {
      await group.commitOffset(set.map(({ offset }) => ({ topic: name, partition, offset })));
      seen += set.length;
      if (seen === records) resolve();
    },
  }]));
  await group.end();
  return seen;
}

async function main() {
  await produceWithKafkaNode();
  await produceWithNoKafka();
  const records = 2 * 10 * ROUNDS.length;
  console.log(await Promise.race([consumeWithKafkaNode(records), within(40, "records with kafka-node")]));
  console.log(await Promise.race([consumeWithNoKafka(records), within(40, "records with no-kafka")]));
  process.exit(0);
}

main();
