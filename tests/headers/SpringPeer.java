// A Spring Cloud Stream service in short: messages of a Kafka topic with embedded headers.
//
//     java -cp <jars> SpringPeer.java write <host:port> <topic>
//     java -cp <jars> SpringPeer.java read <host:port> <topic> <count>
//
// Both use partition 0. "read" prints the payload (hex) and the headers (JSON) of each message.

import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeMap;
import kafka.api.FetchRequestBuilder;
import kafka.javaapi.FetchResponse;
import kafka.javaapi.consumer.SimpleConsumer;
import kafka.message.MessageAndOffset;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.springframework.cloud.stream.binder.EmbeddedHeaderUtils;
import org.springframework.cloud.stream.binder.MessageValues;

public class SpringPeer {
    public static void main(String[] args) throws Exception {
        if (args[0].equals("write")) {
            write(args[1], args[2]);
        } else {
            read(args[1].split(":"), args[2], Integer.parseInt(args[3]));
        }
    }

    private static void write(String servers, String topic) throws Exception {
        Map<String, Object> config = Map.of("bootstrap.servers", servers, "acks", "all");
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(
                config, new ByteArraySerializer(), new ByteArraySerializer())) {
            send(producer, topic, "{}".getBytes(), "contentType", "application/json", "n", 42);
            send(producer, topic, "ä".getBytes(StandardCharsets.UTF_8), "text", "ä \" \uD83D\uDE00");
            send(producer, topic, new byte[0], "flag", true);
            send(producer, topic, new byte[] {-1, 1}, "a", "b");
            send(producer, topic, "no headers".getBytes());
        }
    }

    private static void send(
            KafkaProducer<byte[], byte[]> producer, String topic, byte[] payload, Object... headers)
            throws Exception {
        Map<String, Object> values = new LinkedHashMap<>();
        for (int i = 0; i < headers.length; i += 2) {
            values.put((String) headers[i], headers[i + 1]);
        }
        byte[] value = EmbeddedHeaderUtils.embedHeaders(
            new MessageValues(payload, values), values.keySet().toArray(new String[0]));
        producer.send(new ProducerRecord<>(topic, 0, null, value)).get();
    }

    private static void read(String[] address, String topic, int count) throws Exception {
        SimpleConsumer consumer = new SimpleConsumer(
            address[0], Integer.parseInt(address[1]), 10000, 65536, "spring");
        long offset = 0;
        while (offset < count) {
            FetchResponse response = consumer.fetch(new FetchRequestBuilder()
                .clientId("spring").maxWait(1000).addFetch(topic, 0, offset, 1000000).build());
            for (MessageAndOffset message : response.messageSet(topic, 0)) {
                ByteBuffer data = message.message().payload();
                byte[] value = new byte[data.remaining()];
                data.get(value);
                MessageValues found = EmbeddedHeaderUtils.extractHeaders(value);
                String payload = HexFormat.of().formatHex((byte[]) found.getPayload());
                Map<String, Object> line = Map.of("payload", payload, "headers", new TreeMap<>(found));
                System.out.println(new ObjectMapper().writeValueAsString(line));
                offset = message.nextOffset();
            }
        }
        consumer.close();
    }
}
