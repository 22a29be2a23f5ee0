// sarama: produce with each codec, consume in a group, ask for a topic that is not there.
//
//	sarama BOOTSTRAP TOPIC GROUP
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func config(id string) *sarama.Config {
	made := sarama.NewConfig()
	made.ClientID = id
	made.Version = sarama.MaxVersion
	made.Producer.Return.Successes = true
	made.Consumer.Offsets.Initial = sarama.OffsetOldest
	made.Consumer.Offsets.AutoCommit.Enable = false
	made.Metadata.Retry.Max = 1
	return made
}

type reader struct {
	left int
	done context.CancelFunc
}

func (r *reader) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (r *reader) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (r *reader) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		session.MarkMessage(message, "")
		if r.left--; r.left == 0 {
			session.Commit()
			r.done()
		}
	}
	return nil
}

func main() {
	brokers, topic, group := strings.Split(os.Args[1], ","), os.Args[2], os.Args[3]
	codecs := []sarama.CompressionCodec{sarama.CompressionNone, sarama.CompressionGZIP, sarama.CompressionSnappy,
		sarama.CompressionLZ4, sarama.CompressionZSTD}
	for _, codec := range codecs {
		settings := config("producer-" + codec.String())
		settings.Producer.Compression = codec
		producer, err := sarama.NewSyncProducer(brokers, settings)
		check(err)
		var messages []*sarama.ProducerMessage
		for i := range 20 {
			messages = append(messages, &sarama.ProducerMessage{
				Topic: topic, Key: sarama.StringEncoder(fmt.Sprintf("key-%d", i)),
				Value:   sarama.StringEncoder(strings.Repeat(fmt.Sprintf("record %d ", i), 4)),
				Headers: []sarama.RecordHeader{{Key: []byte("codec"), Value: []byte(codec.String())}},
			})
		}
		check(producer.SendMessages(messages))
		check(producer.Close())
	}

	consumer, err := sarama.NewConsumerGroup(brokers, group, config("consumer"))
	check(err)
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
	handler := &reader{20 * len(codecs), cancel}
	for ctx.Err() == nil {
		check(consumer.Consume(ctx, []string{topic}, handler))
	}
	if handler.left > 0 {
		panic(fmt.Sprint(handler.left, " records are missing"))
	}
	check(consumer.Close())

	producer, err := sarama.NewSyncProducer(brokers, config("lost"))
	check(err)
	_, _, err = producer.SendMessage(&sarama.ProducerMessage{Topic: "no-such-topic", Value: sarama.StringEncoder("value")})
	fmt.Println(err)
	check(producer.Close())
	if err == nil {
		panic("there is such a topic")
	}
}
