// Record batches by Kafka's own clients.
//
//     java -cp <jars> BatchPeer.java write <host:port> <topic>
//     java -cp <jars> BatchPeer.java overwrite <host:port> <topic>
//     java -cp <jars> BatchPeer.java read <host:port> <isolation level> <topic>...
//
// "write" sends records with each codec, alone and in transactions that are committed and aborted.
// "overwrite" sends records whose keys later ones repeat, for compaction: within a batch, all of a
// batch, the last of a batch. "read" prints a line "topic offset type timestamp key value headers"
// for each record of partition 0 up to the present end; bytes in hex after an x, "-" for null.

import java.io.BufferedOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class BatchPeer {
    private static final long BASE = System.currentTimeMillis();

    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "write" -> {
                for (String codec : new String[] {"none", "gzip", "snappy", "lz4", "zstd"}) {
                    write(args[1], args[2], codec);
                }
            }
            case "overwrite" -> {
                send(args[1], args[2], "a", "b", "a", "c", "d");
                send(args[1], args[2], "e", "f");
                send(args[1], args[2], "d", "e", "f");
                send(args[1], args[2], "g");
                Thread.sleep(50);
                send(args[1], args[2], "h");
            }
            case "read" -> {
                PrintStream out = new PrintStream(new BufferedOutputStream(System.out, 1 << 16));
                for (int at = 3; at < args.length; at++) {
                    read(args[1], args[2], args[at], out);
                }
                out.flush();
            }
            default -> throw new IllegalArgumentException(args[0]);
        }
    }

    private static KafkaProducer<byte[], byte[]> producer(String servers, String codec, String id) {
        Map<String, Object> settings = new HashMap<>(Map.of(
                "bootstrap.servers", servers, "compression.type", codec, "linger.ms", "1000"));
        if (id != null) {
            settings.put("transactional.id", id);
        }
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private static void write(String servers, String topic, String codec) throws Exception {
        try (KafkaProducer<byte[], byte[]> plain = producer(servers, codec, null)) {
            records(plain, topic, 20);
        }
        try (KafkaProducer<byte[], byte[]> sender = producer(servers, codec, topic + codec)) {
            sender.initTransactions();
            for (int round = 0; round < 4; round++) {
                sender.beginTransaction();
                records(sender, topic, 3);
                if (round % 2 == 0) {
                    sender.commitTransaction();
                } else {
                    sender.flush();
                    sender.abortTransaction();
                }
            }
        }
    }

    private static void records(KafkaProducer<byte[], byte[]> producer, String topic, int count) {
        for (int index = 0; index < count; index++) {
            byte[] key = index % 3 == 0 ? null : ("key" + index).getBytes(StandardCharsets.UTF_8);
            byte[] value = index % 5 == 4 ? null : new byte[index * 11];
            ProducerRecord<byte[], byte[]> record =
                    new ProducerRecord<>(topic, 0, BASE + 1000 * (index % 7), key, value);
            for (int header = 0; header < index % 4; header++) {
                record.headers().add("h\u00e9" + header, header == 1 ? null : new byte[header]);
            }
            producer.send(record);
        }
    }

    // One batch, by a producer of its own.
    private static void send(String servers, String topic, String... keys) {
        try (KafkaProducer<byte[], byte[]> producer = producer(servers, "none", null)) {
            for (String key : keys) {
                producer.send(new ProducerRecord<>(
                        topic, 0, key.getBytes(StandardCharsets.UTF_8), new byte[] {(byte) keys.length}));
            }
        }
    }

    private static void read(String servers, String isolation, String topic, PrintStream out) {
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", servers,
                "isolation.level", isolation,
                "enable.auto.commit", "false",
                "auto.offset.reset", "none");
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(
                settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            TopicPartition place = new TopicPartition(topic, 0);
            consumer.assign(List.of(place));
            consumer.seek(place, 0);
            long end = consumer.endOffsets(List.of(place)).get(place);
            while (consumer.position(place) < end) {
                for (ConsumerRecord<byte[], byte[]> one : consumer.poll(Duration.ofMillis(200))) {
                    StringBuilder headers = new StringBuilder();
                    for (Header header : one.headers()) {
                        headers.append(' ').append(hex(header.key().getBytes(StandardCharsets.UTF_8)));
                        headers.append(' ').append(hex(header.value()));
                    }
                    out.println(topic + " " + one.offset() + " " + one.timestampType().id + " "
                            + one.timestamp() + " " + hex(one.key()) + " " + hex(one.value()) + headers);
                }
            }
        }
    }

    private static String hex(byte[] bytes) {
        return bytes == null ? "-" : "x" + HexFormat.of().formatHex(bytes);
    }
}
