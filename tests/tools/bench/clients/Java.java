// The producer and the consumers of Kafka 0.8.2.2's own jars.
//
//   java -cp "<classes>:<jars of 0.8.2.2>/*" Java <call> <bootstrap> <zookeeper> <topic>
//       <messages> <value bytes> <compression or none> <batch bytes> <linger ms> <partitions>
//
// Prints the measurement as one line of JSON, counted as in `measure.py`: CPU of the whole process
// (with the compiler and the garbage collector) and wall time from after the warm-up to after the
// last message, and the kernel's peak memory. The warm-up is longer than the thousand messages of the
// other clients, since a JVM compiles code that runs often.

import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.UUID;
import java.util.concurrent.CountDownLatch;
import kafka.api.FetchRequestBuilder;
import kafka.consumer.Consumer;
import kafka.consumer.ConsumerConfig;
import kafka.consumer.ConsumerIterator;
import kafka.javaapi.FetchResponse;
import kafka.javaapi.consumer.ConsumerConnector;
import kafka.javaapi.consumer.SimpleConsumer;
import kafka.message.MessageAndOffset;
import org.apache.kafka.clients.producer.Callback;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class Java {
    static final int MOST_WARM_UP = 200_000;
    static final int FETCH_BYTES = 1024 * 1024;

    static String bootstrap, zookeeper, topic, compression;
    static int messages, valueBytes, batchBytes, lingerMs, partitions;

    static long cpuNs, wallNs;
    static long touched;

    public static void main(String[] args) throws Exception {
        bootstrap = args[1];
        zookeeper = args[2];
        topic = args[3];
        messages = Integer.parseInt(args[4]);
        valueBytes = Integer.parseInt(args[5]);
        compression = args[6];
        batchBytes = Integer.parseInt(args[7]);
        lingerMs = Integer.parseInt(args[8]);
        partitions = Integer.parseInt(args[9]);
        String more = "";
        switch (args[0]) {
            case "produce" -> produce(false);
            case "produce_by_key" -> produce(true);
            case "one_by_one" -> more = oneByOne();
            case "simple" -> twice(Java::simple);
            case "high_level" -> twice(Java::highLevel);
            default -> throw new IllegalArgumentException(args[0]);
        }
        System.out.printf(
            "{\"messages\": %d, \"seconds\": %.6f, \"cpu_seconds\": %.6f, \"peak_rss_mb\": %.1f%s}%n",
            messages, wallNs / 1e9, cpuNs / 1e9, peakRssMb(), more);
        System.exit(0);  // threads of ZooKeeper's client may linger
    }

    static void start() {
        cpuNs = -cpu();
        wallNs = -System.nanoTime();
    }

    static void stop() {
        wallNs += System.nanoTime();
        cpuNs += cpu();
    }

    static long cpu() {
        return ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean())
            .getProcessCpuTime();
    }

    static double peakRssMb() throws Exception {
        for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
            if (line.startsWith("VmHWM:")) return Long.parseLong(line.split("\\s+")[1]) / 1024.0;
        }
        throw new IllegalStateException("/proc/self/status has no VmHWM");
    }

    /** As `values` in cases.py makes them. */
    static byte[][] values() {
        byte[][] made = new byte[messages][];
        for (int i = 0; i < messages; i++) {
            String text = String.format(
                "GET /articles/%07d?page=%03d HTTP/1.1 200 agent=Mozilla/5.0 (X11) ref=/home ",
                i * 2654435761L % 9999991L, i % 997);
            byte[] line = text.getBytes(StandardCharsets.US_ASCII);
            made[i] = new byte[valueBytes];
            for (int at = 0; at < valueBytes; at++) made[i][at] = line[at % line.length];
        }
        return made;
    }

    static KafkaProducer<byte[], byte[]> producer(int linger) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("acks", "1");
        settings.put("linger.ms", linger);
        settings.put("batch.size", batchBytes);
        settings.put("compression.type", compression);
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    /** As `keys` in cases.py makes them. */
    static byte[][] keys() {
        byte[][] made = new byte[messages][];
        for (int i = 0; i < messages; i++) {
            made[i] = ("user-" + i * 7919L % 100_003).getBytes(StandardCharsets.US_ASCII);
        }
        return made;
    }

    /** Each message with a callback; 0.8.2's producer has no flush. */
    static void produce(boolean byKey) throws Exception {
        byte[][] values = values();
        byte[][] keys = byKey ? keys() : null;
        KafkaProducer<byte[], byte[]> producer = producer(lingerMs);
        send(producer, keys, values, Math.min(messages, MOST_WARM_UP));
        start();
        send(producer, keys, values, messages);
        stop();
        producer.close();
    }

    static void send(
            KafkaProducer<byte[], byte[]> producer, byte[][] keys, byte[][] values, int count)
            throws Exception {
        CountDownLatch delivered = new CountDownLatch(count);
        Callback callback = (metadata, error) -> {
            if (error != null) {
                error.printStackTrace();
                Runtime.getRuntime().halt(1);
            }
            delivered.countDown();
        };
        for (int i = 0; i < count; i++) {
            producer.send(
                keys == null
                    ? new ProducerRecord<>(topic, i % partitions, null, values[i])
                    : new ProducerRecord<>(topic, keys[i], values[i]),
                callback);
        }
        delivered.await();
    }

    static String oneByOne() throws Exception {
        byte[][] values = values();
        long[] took = new long[messages];
        KafkaProducer<byte[], byte[]> producer = producer(0);
        for (byte[] value : values) producer.send(new ProducerRecord<>(topic, 0, null, value)).get();
        start();
        for (int i = 0; i < messages; i++) {
            long begun = System.nanoTime();
            producer.send(new ProducerRecord<>(topic, 0, null, values[i])).get();
            took[i] = System.nanoTime() - begun;
        }
        stop();
        producer.close();
        Arrays.sort(took);
        return String.format(
            ", \"p50_ms\": %.6f, \"p99_ms\": %.6f",
            took[messages / 2] / 1e6, took[(int) (messages * 0.99)] / 1e6);
    }

    interface Reader {
        void read(int count) throws Exception;
    }

    /** Another consumer warms up. */
    static void twice(Reader reader) throws Exception {
        reader.read(Math.min(messages, MOST_WARM_UP));
        reader.read(messages);
    }

    /** All partitions in one request; the checksum of each message checked. */
    static void simple(int count) {
        String[] address = bootstrap.split(",")[0].split(":");
        SimpleConsumer consumer = new SimpleConsumer(
            address[0], Integer.parseInt(address[1]), 30_000, FETCH_BYTES, "bench");
        long[] next = new long[partitions];
        start();
        for (int seen = 0; seen < count; ) {
            FetchRequestBuilder request =
                new FetchRequestBuilder().clientId("bench").maxWait(100).minBytes(1);
            for (int part = 0; part < partitions; part++) {
                request.addFetch(topic, part, next[part], FETCH_BYTES);
            }
            FetchResponse response = consumer.fetch(request.build());
            if (response.hasError()) throw new IllegalStateException("fetch: " + response);
            for (int part = 0; part < partitions && seen < count; part++) {
                for (MessageAndOffset one : response.messageSet(topic, part)) {
                    if (one.offset() < next[part]) continue;  // before it in a compressed set
                    one.message().ensureValid();
                    touched += one.message().payload().remaining();
                    next[part] = one.nextOffset();
                    if (++seen == count) break;
                }
            }
        }
        stop();
        consumer.close();
    }

    /** One stream; it checks the checksums itself. Measured from its first message on. */
    static void highLevel(int count) {
        Properties settings = new Properties();
        settings.put("zookeeper.connect", zookeeper);
        settings.put("group.id", "bench-" + UUID.randomUUID());
        settings.put("auto.offset.reset", "smallest");
        settings.put("auto.commit.enable", "false");
        settings.put("fetch.message.max.bytes", "" + FETCH_BYTES);
        settings.put("consumer.timeout.ms", "30000");
        ConsumerConnector connector =
            Consumer.createJavaConsumerConnector(new ConsumerConfig(settings));
        ConsumerIterator<byte[], byte[]> stream =
            connector.createMessageStreams(Map.of(topic, 1)).get(topic).get(0).iterator();
        stream.hasNext();
        start();
        for (int seen = 0; seen < count; seen++) touched += stream.next().message().length;
        stop();
        connector.shutdown();
    }
}
