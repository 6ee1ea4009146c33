package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strings"
	"time"

	kafka "github.com/segmentio/kafka-go"
)

func step(name string, value interface{}) {
	b, _ := json.Marshal([]interface{}{name, value})
	fmt.Println(string(b))
}
func code(err error) string {
	if err == nil {
		return "ok"
	}
	return err.Error()
}
func main() {
	servers, run := strings.Split(os.Args[1], ","), os.Args[2]
	topic, group := "t"+run, "g"+run
	ctx, cancel := context.WithTimeout(context.Background(), 120*time.Second)
	defer cancel()
	client := &kafka.Client{Addr: kafka.TCP(servers...), Timeout: 20 * time.Second}
	create := func(name string, n, r int) {
		res, err := client.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{Topic: name, NumPartitions: n, ReplicationFactor: r}}})
		if err != nil {
			step("create", err.Error())
			return
		}
		step("create", code(res.Errors[name]))
	}
	create(topic, 3, 1)
	create(topic, 3, 1)
	create(topic+"y", 1, 9)
	conn, err := kafka.Dial("tcp", servers[0])
	if err != nil {
		step("dial", err.Error())
		return
	}
	vs, err := conn.ApiVersions()
	step("apis", []interface{}{len(vs), code(err)})
	c, err := conn.Controller()
	step("controller", []interface{}{c.ID, code(err)})
	parts, err := conn.ReadPartitions(topic)
	var ids []int
	for _, p := range parts {
		ids = append(ids, p.ID)
	}
	sort.Ints(ids)
	step("partitions", ids)
	conn.Close()
	for _, codec := range []kafka.Compression{0, kafka.Gzip} {
		w := &kafka.Writer{Addr: kafka.TCP(servers...), Topic: topic, Balancer: &kafka.RoundRobin{}, RequiredAcks: kafka.RequireAll, Compression: codec, BatchTimeout: 10 * time.Millisecond}
		var ms []kafka.Message
		for n := 0; n < 15; n++ {
			ms = append(ms, kafka.Message{Key: []byte(fmt.Sprint("k", n)), Value: []byte(fmt.Sprint("v", n)), Time: time.Unix(1600000000+int64(n), 0)})
		}
		step("write", code(w.WriteMessages(ctx, ms...)))
		w.Close()
	}
	for n := 0; n < 3; n++ {
		l, err := kafka.DialLeader(ctx, "tcp", servers[0], topic, n)
		if err != nil {
			step("leader", err.Error())
			continue
		}
		first, last, err := l.ReadOffsets()
		step("offsets", []interface{}{first, last, code(err)})
		o, err := l.ReadOffset(time.Unix(1600000005, 0))
		step("offset", []interface{}{o, code(err)})
		l.Close()
		r := kafka.NewReader(kafka.ReaderConfig{Brokers: servers, Topic: topic, Partition: n, MinBytes: 1, MaxBytes: 1 << 20, MaxWait: 200 * time.Millisecond})
		r.SetOffset(kafka.FirstOffset)
		var got []string
		for len(got) < 10 {
			m, err := r.ReadMessage(ctx)
			if err != nil {
				step("error", err.Error())
				break
			}
			got = append(got, fmt.Sprintf("%d/%s/%s", m.Offset, m.Key, m.Value))
		}
		step("read", got)
		r.Close()
	}
	for round := 0; round < 2; round++ {
		r := kafka.NewReader(kafka.ReaderConfig{Brokers: servers, GroupID: group, Topic: topic, StartOffset: kafka.FirstOffset, MinBytes: 1, MaxBytes: 1 << 20, MaxWait: 200 * time.Millisecond})
		want := []int{30, 1}[round]
		if round == 1 {
			w := &kafka.Writer{Addr: kafka.TCP(servers...), Topic: topic, RequiredAcks: kafka.RequireAll, BatchTimeout: 10 * time.Millisecond}
			step("one more", code(w.WriteMessages(ctx, kafka.Message{Value: []byte("more")})))
			w.Close()
		}
		var got []string
		for len(got) < want {
			t, stop := context.WithTimeout(ctx, 40*time.Second)
			m, err := r.FetchMessage(t)
			stop()
			if err != nil {
				step("error", err.Error())
				break
			}
			got = append(got, fmt.Sprintf("%d/%d/%s", m.Partition, m.Offset, m.Value))
			if err := r.CommitMessages(ctx, m); err != nil {
				step("commit", err.Error())
			}
		}
		sort.Strings(got)
		if round == 1 {
			for i := range got {
				got[i] = strings.SplitN(got[i], "/", 3)[2]
			}
		}
		step("group read", got)
		r.Close()
	}
	of, err := client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: group, Topics: map[string][]int{topic: {2, 0, 1}}})
	if err != nil {
		step("committed", err.Error())
	} else {
		sum := int64(0)
		for _, p := range of.Topics[topic] {
			sum += p.CommittedOffset
		}
		step("committed", []interface{}{len(of.Topics[topic]), sum, code(of.Error)})
	}
	dr, err := client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{topic, topic + "none"}})
	if err != nil {
		step("delete", err.Error())
	} else {
		step("delete", []interface{}{code(dr.Errors[topic]), code(dr.Errors[topic+"none"])})
	}
}
