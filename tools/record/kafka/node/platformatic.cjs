// @platformatic/kafka: produce with each codec, consume in a group, ask for a topic that is not there.
// node platformatic.cjs BOOTSTRAP TOPIC GROUP
// The client is written for Node 22, where promises have this.
Promise.withResolvers ??= () => {
  const made = {};
  made.promise = new Promise((resolve, reject) => Object.assign(made, { resolve, reject }));
  return made;
};
const { Producer, Consumer, stringSerializers, stringDeserializers } = require("@platformatic/kafka");

const [bootstrap, topic, groupId] = process.argv.slice(2);
const common = (clientId) => ({ clientId, bootstrapBrokers: bootstrap.split(","), retries: 1 });

async function main() {
  const codecs = ["none", "gzip", "lz4", "zstd"];
  let produced = 0;
  for (const compression of codecs) {
    const producer = new Producer({ ...common(`producer-${compression}`), serializers: stringSerializers });
    const messages = Array.from({ length: 20 }, (_, i) => ({
      topic, key: `key-${i}`, value: `record ${i} `.repeat(4), headers: { codec: compression },
    }));
    try {
      await producer.send({ messages, compression });
      produced += messages.length;
    } catch (error) {
      console.log(compression, error.message);  // a codec that this Node lacks
    }
    await producer.close();
  }

  const consumer = new Consumer({ ...common("consumer"), groupId, deserializers: stringDeserializers });
  const stream = await consumer.consume({ topics: [topic], mode: "earliest", autocommit: false });
  let seen = 0;
  const late = setTimeout(() => { console.error(`only ${seen}`); process.exit(1); }, 30_000);
  for await (const message of stream) {
    seen += 1;
    if (seen === produced) { await message.commit(); break; }
  }
  clearTimeout(late);
  await stream.close();
  await consumer.close();

  const producer = new Producer({ ...common("lost"), serializers: stringSerializers });
  await producer.send({ messages: [{ topic: "no-such-topic", key: "k", value: "v" }] }).then(
    () => { throw new Error("there is such a topic"); },
    (error) => console.log(error.message),
  );
  await producer.close();
}

main().then(() => process.exit(0), (error) => { console.error(error); process.exit(1); });
