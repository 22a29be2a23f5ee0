// kafka-go: produce with each codec, consume in a group, write to a topic that is not there.
//
//	kafkago BOOTSTRAP TOPIC GROUP
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	brokers, topic, group := strings.Split(os.Args[1], ","), os.Args[2], os.Args[3]
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()

	codecs := []kafka.Compression{0, kafka.Gzip, kafka.Snappy, kafka.Lz4, kafka.Zstd}
	for _, codec := range codecs {
		var messages []kafka.Message
		for i := range 20 {
			messages = append(messages, kafka.Message{
				Key:     fmt.Appendf(nil, "key-%d", i),
				Value:   []byte(strings.Repeat(fmt.Sprintf("record %d ", i), 4)),
				Headers: []kafka.Header{{Key: "codec", Value: []byte(codec.String())}},
			})
		}
		transport := &kafka.Transport{ClientID: "producer-" + codec.String()}
		writer := &kafka.Writer{
			Addr: kafka.TCP(brokers...), Topic: topic, Balancer: &kafka.Hash{}, Compression: codec,
			BatchTimeout: 10 * time.Millisecond, RequiredAcks: kafka.RequireAll, Transport: transport,
		}
		check(writer.WriteMessages(ctx, messages...))
		check(writer.Close())
		transport.CloseIdleConnections()
	}

	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: brokers, Topic: topic, GroupID: group, StartOffset: kafka.FirstOffset, MaxWait: time.Second,
		Dialer: &kafka.Dialer{ClientID: "consumer", Timeout: 10 * time.Second},
	})
	for range 20 * len(codecs) {
		message, err := reader.FetchMessage(ctx)
		check(err)
		check(reader.CommitMessages(ctx, message))
	}
	check(reader.Close())

	writer := &kafka.Writer{
		Addr: kafka.TCP(brokers...), Topic: "no-such-topic", MaxAttempts: 2,
		Transport: &kafka.Transport{ClientID: "lost"},
	}
	err := writer.WriteMessages(ctx, kafka.Message{Value: []byte("value")})
	fmt.Println(err)
	check(writer.Close())
	if err == nil {
		panic("there is such a topic")
	}
}
