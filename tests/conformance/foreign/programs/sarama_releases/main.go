// sarama 1.29.1 as for a release of the brokers: produce, read, commit.
//
//     program SERVERS TOPIC RELEASE
//
// Prints "sent OFFSET TIMESTAMP KEY VALUE" for each acknowledged message, "read KEY VALUE" for each one
// read, and "committed OFFSET", which an offset manager has written and another one has read.
package main

import (
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/Shopify/sarama"
)

const count = 50

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func config(release string) *sarama.Config {
	version, err := sarama.ParseKafkaVersion(release)
	must(err)
	c := sarama.NewConfig()
	c.Version = version
	c.Metadata.Retry.Max = 3
	c.Producer.Retry.Max = 3
	c.Producer.Return.Successes = true
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Return.Errors = true
	return c
}

func main() {
	servers, topic, release := strings.Split(os.Args[1], ","), os.Args[2], os.Args[3]
	begin := time.Now().UnixMilli()
	codecs := []sarama.CompressionCodec{sarama.CompressionNone, sarama.CompressionGZIP, sarama.CompressionSnappy}
	if config(release).Version.IsAtLeast(sarama.V0_10_0_0) {
		codecs = append(codecs, sarama.CompressionLZ4) // sarama has it from 0.10 on
	}
	for _, codec := range codecs {
		c := config(release)
		c.Producer.Compression = codec
		producer, err := sarama.NewSyncProducer(servers, c)
		must(err)
		for number := 0; number < count; number++ {
			_, offset, err := producer.SendMessage(&sarama.ProducerMessage{
				Topic:     topic,
				Key:       sarama.StringEncoder(fmt.Sprint("key-", number)),
				Value:     sarama.StringEncoder(fmt.Sprint(codec, "-", number)),
				Timestamp: time.UnixMilli(begin + int64(number)),
			})
			must(err)
			fmt.Printf("sent %d %d key-%d %s-%d\n", offset, begin+int64(number), number, codec, number)
		}
		must(producer.Close())
	}
	client, err := sarama.NewClient(servers, config(release))
	must(err)
	consumer, err := sarama.NewConsumerFromClient(client)
	must(err)
	partition, err := consumer.ConsumePartition(topic, 0, sarama.OffsetOldest)
	must(err)
	for number := 0; number < count*len(codecs); number++ {
		select {
		case message := <-partition.Messages():
			fmt.Printf("read %s %s\n", message.Key, message.Value)
		case err := <-partition.Errors():
			must(err)
		case <-time.After(60 * time.Second):
			log.Fatal("nothing to read for 60 s")
		}
	}
	must(partition.Close())
	for round := 0; round < 2; round++ {
		manager, err := sarama.NewOffsetManagerFromClient(topic, client)
		must(err)
		place, err := manager.ManagePartition(topic, 0)
		must(err)
		if round == 0 {
			place.MarkOffset(int64(count), "note")
		} else {
			offset, _ := place.NextOffset()
			fmt.Println("committed", offset)
		}
		must(place.Close())
		must(manager.Close())
	}
	must(consumer.Close())
	must(client.Close())
}
