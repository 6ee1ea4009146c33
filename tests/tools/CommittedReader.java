// What Kafka's own consumer sees of topics with isolation.level=read_committed.
//
//     java -cp <jars> CommittedReader.java <host:port> [<topic>]
//
// Without a topic it reads their names from stdin. Prints a line "partition offset key value
// timestamp" for each record up to the present end, and "end <topic>" behind them; key and value in
// hex, "-" for null.

import java.io.BufferedOutputStream;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.time.Duration;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class CommittedReader {
    public static void main(String[] args) throws IOException {
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", args[0],
                "isolation.level", "read_committed",
                "enable.auto.commit", "false",
                "auto.offset.reset", "none");
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(
                settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            if (args.length > 1) {
                read(consumer, args[1]);
                return;
            }
            BufferedReader names = new BufferedReader(new InputStreamReader(System.in));
            for (String topic = names.readLine(); topic != null; topic = names.readLine()) {
                read(consumer, topic);
            }
        }
    }

    private static void read(KafkaConsumer<byte[], byte[]> consumer, String topic) {
        PrintStream out = new PrintStream(new BufferedOutputStream(System.out, 1 << 16));
        List<TopicPartition> all = consumer.partitionsFor(topic).stream()
                .map(one -> new TopicPartition(one.topic(), one.partition()))
                .toList();
        consumer.assign(all);
        consumer.beginningOffsets(all).forEach(consumer::seek);
        // With read_committed these are the last stable offsets: all transactions are decided.
        Map<TopicPartition, Long> ends = consumer.endOffsets(all);
        while (all.stream().anyMatch(one -> consumer.position(one) < ends.get(one))) {
            for (ConsumerRecord<byte[], byte[]> one : consumer.poll(Duration.ofMillis(200))) {
                out.println(one.partition() + " " + one.offset() + " " + hex(one.key()) + " " + hex(one.value()) + " " + one.timestamp());
            }
        }
        out.println("end " + topic);
        out.flush();
    }

    private static String hex(byte[] bytes) {
        return bytes == null ? "-" : "x" + HexFormat.of().formatHex(bytes);
    }
}
