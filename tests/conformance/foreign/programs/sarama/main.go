package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"sort"
	"strings"
	"time"

	"github.com/Shopify/sarama"
)

func step(name string, value interface{}) {
	b, _ := json.Marshal([]interface{}{name, value})
	fmt.Println(string(b))
}
func code(err error) string {
	if err == nil {
		return "ok"
	}
	if t, ok := err.(*sarama.TopicError); ok {
		return t.Err.Error()
	}
	return err.Error()
}

type handler struct {
	got  chan string
	n    int
	done context.CancelFunc
	seen []string
}

func (h *handler) Setup(s sarama.ConsumerGroupSession) error {
	var c []int32
	for _, ps := range s.Claims() {
		c = append(c, ps...)
	}
	sort.Slice(c, func(i, j int) bool { return c[i] < c[j] })
	step("claims", c)
	return nil
}
func (h *handler) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (h *handler) ConsumeClaim(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	for {
		select {
		case m, ok := <-c.Messages():
			if !ok {
				return nil
			}
			h.got <- fmt.Sprintf("%d/%d/%s/%s", m.Partition, m.Offset, m.Key, m.Value)
			s.MarkMessage(m, "note")
		case <-s.Context().Done():
			return nil
		}
	}
}
func main() {
	servers, run := strings.Split(os.Args[1], ","), os.Args[2]
	sarama.Logger = log.New(os.Stderr, "", 0)
	conf := func() *sarama.Config {
		c := sarama.NewConfig()
		c.Version = sarama.V0_10_2_0
		c.Producer.Return.Successes = true
		c.Consumer.Offsets.Initial = sarama.OffsetOldest
		c.Consumer.Offsets.AutoCommit.Interval = 100 * time.Millisecond
		c.Consumer.Return.Errors = true
		return c
	}
	topic, group := "t"+run, "g"+run
	admin, err := sarama.NewClusterAdmin(servers, conf())
	if err != nil {
		step("admin", err.Error())
		return
	}
	step("create", code(admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 3, ReplicationFactor: 1}, false)))
	step("create again", code(admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 3, ReplicationFactor: 1}, false)))
	step("validate", code(admin.CreateTopic(topic+"v", &sarama.TopicDetail{NumPartitions: 3, ReplicationFactor: 9}, true)))
	step("create x", code(admin.CreateTopic(topic+"x", &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false)))
	step("delete x", code(admin.DeleteTopic(topic+"x")))
	step("delete none", code(admin.DeleteTopic(topic+"none")))
	client, err := sarama.NewClient(servers, conf())
	if err != nil {
		step("client", err.Error())
		return
	}
	ps, err := client.Partitions(topic)
	step("partitions", []interface{}{ps, code(err)})
	_, err = client.Controller()
	step("controller", code(err))
	for i, codec := range []sarama.CompressionCodec{sarama.CompressionNone, sarama.CompressionGZIP, sarama.CompressionLZ4} {
		c := conf()
		c.Producer.Compression = codec
		c.Producer.RequiredAcks = []sarama.RequiredAcks{sarama.WaitForAll, sarama.WaitForLocal, sarama.WaitForAll}[i]
		c.Producer.Partitioner = sarama.NewManualPartitioner
		p, err := sarama.NewSyncProducer(servers, c)
		if err != nil {
			step("producer", err.Error())
			return
		}
		var ms []*sarama.ProducerMessage
		for n := 0; n < 15; n++ {
			ms = append(ms, &sarama.ProducerMessage{Topic: topic, Partition: int32(n % 3), Key: sarama.StringEncoder(fmt.Sprint("k", n)), Value: sarama.StringEncoder(fmt.Sprint("v", i, "-", n)), Timestamp: time.Unix(1600000000+int64(i*100+n), 0)})
		}
		step("send", code(p.SendMessages(ms)))
		p.Close()
	}
	for n := int32(0); n < 3; n++ {
		for _, t := range []int64{sarama.OffsetOldest, sarama.OffsetNewest, 1600000103000} {
			o, err := client.GetOffset(topic, n, t)
			step("offset", []interface{}{n, t, o, code(err)})
		}
	}
	c, err := sarama.NewConsumer(servers, conf())
	if err != nil {
		step("consumer", err.Error())
		return
	}
	for n := int32(0); n < 3; n++ {
		pc, err := c.ConsumePartition(topic, n, sarama.OffsetOldest)
		if err != nil {
			step("consume", err.Error())
			continue
		}
		var got []string
		for len(got) < 15 {
			select {
			case m := <-pc.Messages():
				got = append(got, fmt.Sprintf("%d/%s/%s/%d", m.Offset, m.Key, m.Value, m.Timestamp.Unix()))
				continue
			case e := <-pc.Errors():
				step("error", e.Error())
			case <-time.After(20 * time.Second):
				step("timeout", len(got))
			}
			break
		}
		step("read", got)
		pc.Close()
	}
	_, err = c.ConsumePartition(topic, 0, 999)
	step("out of range", code(err))
	c.Close()
	for round := 0; round < 2; round++ {
		g, err := sarama.NewConsumerGroup(servers, group, conf())
		if err != nil {
			step("group", err.Error())
			return
		}
		ctx, cancel := context.WithCancel(context.Background())
		h := &handler{got: make(chan string, 1000)}
		finished := make(chan bool)
		go func() {
			if err := g.Consume(ctx, []string{topic}, h); err != nil {
				step("consume group", err.Error())
			}
			close(finished)
		}()
		want := []int{45, 1}[round]
		var got []string
		if round == 1 {
			p, _ := sarama.NewSyncProducer(servers, conf())
			time.Sleep(time.Second)
			pc := conf()
			pc.Producer.Partitioner = sarama.NewManualPartitioner
			p.Close()
			p, _ = sarama.NewSyncProducer(servers, pc)
			_, _, err := p.SendMessage(&sarama.ProducerMessage{Topic: topic, Partition: 1, Value: sarama.StringEncoder("more")})
			step("one more", code(err))
			p.Close()
		}
		for len(got) < want {
			select {
			case s := <-h.got:
				got = append(got, s)
				continue
			case <-time.After(25 * time.Second):
				step("timeout", len(got))
			}
			break
		}
		sort.Strings(got)
		step("group read", got)
		time.Sleep(400 * time.Millisecond)
		cancel()
		<-finished
		g.Close()
	}
	off, err := admin.ListConsumerGroupOffsets(group, map[string][]int32{topic: {2, 0, 1}})
	if err == nil {
		for n := int32(0); n < 3; n++ {
			b := off.GetBlock(topic, n)
			step("committed", []interface{}{n, b.Offset, b.Metadata, b.Err.Error()})
		}
	} else {
		step("committed", err.Error())
	}
	gs, err := admin.ListConsumerGroups()
	step("groups", []interface{}{gs[group], code(err)})
	ds, err := admin.DescribeConsumerGroups([]string{group})
	if err == nil {
		step("describe", []interface{}{ds[0].State, ds[0].ProtocolType, len(ds[0].Members)})
	}
	om, err := sarama.NewOffsetManagerFromClient(group+"2", client)
	if err == nil {
		pom, err := om.ManagePartition(topic, 1)
		if err == nil {
			o, m := pom.NextOffset()
			step("managed", []interface{}{o, m})
			pom.MarkOffset(7, "seven")
			pom.Close()
		} else {
			step("managed", err.Error())
		}
		om.Close()
		om, _ = sarama.NewOffsetManagerFromClient(group+"2", client)
		pom, err = om.ManagePartition(topic, 1)
		if err == nil {
			o, m := pom.NextOffset()
			step("managed again", []interface{}{o, m})
			pom.Close()
		}
		om.Close()
	}
	step("delete", code(admin.DeleteTopic(topic)))
	client.Close()
	admin.Close()
}
