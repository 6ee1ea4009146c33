// Numbered messages to each partition of a topic by Kafka's own producers of old, until SIGTERM.
//
//     java -cp <jars of 0.8.2 to 0.10.2> OldProducer.java scala|java <servers> <topic> <partitions>
//
// Prints its history as `foreign_client` does: a line for each message that has ended, and one for
// each message, of any partition, that is sent again. The clock is that of Python's
// time.monotonic(). The Scala producer tells no offsets.

import com.yammer.metrics.Metrics;
import com.yammer.metrics.core.Meter;
import com.yammer.metrics.core.Metric;
import com.yammer.metrics.core.MetricName;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import kafka.javaapi.producer.Producer;
import kafka.producer.KeyedMessage;
import kafka.producer.ProducerConfig;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.log4j.AppenderSkeleton;
import org.apache.log4j.Logger;
import org.apache.log4j.spi.LoggingEvent;

public class OldProducer {
    private static final int PAUSE_MS = 20; // as `foreign_client`
    private static final String BYTES =
            "org.apache.kafka.common.serialization.ByteArraySerializer";

    private static volatile boolean ends;
    private static String name;
    private static String topic;

    interface Sender {
        void send(int partition, String value);

        void close();
    }

    public static void main(String[] args) throws Exception {
        name = args[0];
        topic = args[2];
        int partitions = Integer.parseInt(args[3]);
        Sender sender =
                name.equals("scala") ? scala(args[1], partitions) : java(args[1], partitions);
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            ends = true;
            try {
                main.join();
            } catch (InterruptedException error) {
                throw new IllegalStateException(error);
            }
        }));
        for (int number = 0; !ends; number++) {
            for (int partition = 0; partition < partitions; partition++) {
                sender.send(partition, partition + ":" + number);
            }
            Thread.sleep(PAUSE_MS);
        }
        sender.close();
    }

    // Sends one message at a time, and waits for it.
    private static Sender scala(String servers, int partitions) {
        Properties settings = new Properties();
        settings.put("metadata.broker.list", servers);
        settings.put("request.required.acks", "-1");
        settings.put("request.timeout.ms", "10000");
        settings.put("message.send.max.retries", "300");
        settings.put("retry.backoff.ms", "200");
        settings.put("serializer.class", "kafka.serializer.DefaultEncoder");
        Producer<byte[], byte[]> producer = new Producer<>(new ProducerConfig(settings));
        return new Sender() {
            private long known;

            public void send(int partition, String value) {
                double invoked = now();
                String error = null;
                try {
                    // The default partitioner takes the hash of a number, which is the number.
                    producer.send(new KeyedMessage<>(topic, null, (Object) partition, bytes(value)));
                } catch (Exception failure) {
                    error = failure.toString();
                }
                long resent = resends();
                if (resent > known) {
                    known = resent;
                    printRetried(partitions);
                }
                printSent(invoked, null, partition, value, null, error);
            }

            public void close() {
                producer.close();
            }
        };
    }

    private static long resends() {
        for (Map.Entry<MetricName, Metric> one : Metrics.defaultRegistry().allMetrics().entrySet()) {
            if (one.getKey().getName().equals("ResendsPerSec")) {
                return ((Meter) one.getValue()).count();
            }
        }
        return 0;
    }

    private static Sender java(String servers, int partitions) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", servers);
        settings.put("acks", "all");
        settings.put("retries", Integer.MAX_VALUE);
        settings.put("retry.backoff.ms", 200);
        settings.put("request.timeout.ms", 20000); // batches also expire after it
        settings.put("max.block.ms", 120000);
        settings.put("max.in.flight.requests.per.connection", 1);
        settings.put("key.serializer", BYTES);
        settings.put("value.serializer", BYTES);
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings);
        AppenderSkeleton retries = new AppenderSkeleton() {
            protected void append(LoggingEvent event) {
                if (event.getRenderedMessage().contains("retrying")) {
                    printRetried(partitions);
                }
            }

            public boolean requiresLayout() {
                return false;
            }

            public void close() {}
        };
        Logger.getLogger("org.apache.kafka.clients.producer.internals.Sender").addAppender(retries);
        return new Sender() {
            public void send(int partition, String value) {
                double invoked = now();
                double[] accepted = new double[1]; // 0 if the message has ended before `send` does
                producer.send(
                        new ProducerRecord<>(topic, partition, null, bytes(value)),
                        (stored, error) -> printSent(
                                invoked,
                                accepted[0] == 0 ? null : accepted[0],
                                partition,
                                value,
                                error == null ? stored.offset() : null,
                                error == null ? null : error.toString()));
                accepted[0] = now();
            }

            public void close() {
                producer.close();
            }
        };
    }

    private static byte[] bytes(String value) {
        return value.getBytes(StandardCharsets.UTF_8);
    }

    private static double now() {
        return System.nanoTime() / 1e9;
    }

    private static void printSent(
            double invoked, Double accepted, int partition, String value, Long offset, String error) {
        print(String.format(
                "\"call\": \"send\", \"invoked\": %.6f, \"ended\": %.6f, \"accepted\": %s, "
                        + "\"status\": \"%s\", \"sent\": [[\"%s/%d\", %s, \"%s\"]], \"error\": \"%s\"",
                invoked,
                now(),
                accepted == null ? "null" : String.format("%.6f", accepted),
                error == null ? "ok" : "unknown",
                topic,
                partition,
                offset,
                value,
                error == null ? "" : error.replaceAll("[^ -~]|[\"\\\\]", " ")));
    }

    // A report stands for many messages: neither producer says which ones are sent again.
    private static void printRetried(int partitions) {
        double at = now();
        for (int partition = 0; partition < partitions; partition++) {
            print(String.format(
                    "\"call\": \"retried\", \"invoked\": %.6f, \"ended\": %.6f, \"partitions\": "
                            + "[\"%s/%d\"], \"facts\": {\"messages\": 10000, \"may_be_stored\": true}",
                    at, at, topic, partition));
        }
    }

    private static synchronized void print(String fields) {
        System.out.println("{\"process\": \"" + name + "\", " + fields + "}");
        System.out.flush();
    }
}
