// What Kafka's own consumer sees of a topic with isolation.level=read_committed.
//
//     java -cp <jars> CommittedReader.java <host:port> <topic>
//
// Prints a line "partition offset key value" for each record up to the present end; key and value
// in hex, "-" for null.

import java.io.BufferedOutputStream;
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
    public static void main(String[] args) {
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", args[0],
                "isolation.level", "read_committed",
                "enable.auto.commit", "false",
                "auto.offset.reset", "none");
        PrintStream out = new PrintStream(new BufferedOutputStream(System.out, 1 << 16));
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(
                settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            List<TopicPartition> all = consumer.partitionsFor(args[1]).stream()
                    .map(one -> new TopicPartition(one.topic(), one.partition()))
                    .toList();
            consumer.assign(all);
            consumer.beginningOffsets(all).forEach(consumer::seek);
            // With read_committed these are the last stable offsets: all transactions are decided.
            Map<TopicPartition, Long> ends = consumer.endOffsets(all);
            while (all.stream().anyMatch(one -> consumer.position(one) < ends.get(one))) {
                for (ConsumerRecord<byte[], byte[]> one : consumer.poll(Duration.ofMillis(200))) {
                    out.println(one.partition() + " " + one.offset() + " " + hex(one.key()) + " " + hex(one.value()));
                }
            }
        }
        out.flush();
    }

    private static String hex(byte[] bytes) {
        return bytes == null ? "-" : "x" + HexFormat.of().formatHex(bytes);
    }
}
