// franz-go: produce with each codec, consume in a group, ask for a topic that is not there.
//
//	franz BOOTSTRAP TOPIC GROUP
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func client(id string, options ...kgo.Opt) *kgo.Client {
	made, err := kgo.NewClient(append(options, kgo.SeedBrokers(strings.Split(os.Args[1], ",")...), kgo.ClientID(id))...)
	check(err)
	return made
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	topic, group := os.Args[2], os.Args[3]
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	for name, codec := range codecs {
		producer := client("producer-"+name, kgo.ProducerBatchCompression(codec), kgo.ProducerLinger(30*time.Millisecond))
		var records []*kgo.Record
		for i := range 20 {
			records = append(records, &kgo.Record{
				Topic: topic, Key: fmt.Appendf(nil, "key-%d", i), Value: []byte(strings.Repeat(fmt.Sprintf("record %d ", i), 4)),
				Headers: []kgo.RecordHeader{{Key: "codec", Value: []byte(name)}},
			})
		}
		check(producer.ProduceSync(ctx, records...).FirstErr())
		producer.Close()
	}

	consumer := client("consumer", kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	for seen := 0; seen < 20*len(codecs); {
		fetches := consumer.PollFetches(ctx)
		check(fetches.Err0())
		seen += fetches.NumRecords()
	}
	check(consumer.CommitUncommittedOffsets(ctx))
	consumer.LeaveGroup()
	consumer.Close()

	lost := client("lost", kgo.UnknownTopicRetries(1))
	err := lost.ProduceSync(ctx, kgo.StringRecord("value"), &kgo.Record{Topic: "no-such-topic", Value: []byte("value")}).FirstErr()
	fmt.Println(err)
	lost.Close()
	if err == nil {
		panic("there is such a topic")
	}
}
