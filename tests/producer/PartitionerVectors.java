// Writes partitioner_vectors.json by running the partitioners of real Kafka producers.
//
// It needs three folders with the jars of org.apache.kafka:kafka_2.10, versions 0.8.0, 0.8.1.1 and
// 0.8.2.2, and their dependencies (`mvn dependency:copy-dependencies`; without com.sun.jmx:jmxri,
// com.sun.jdmk:jmxtools and javax.jms:jms for the first two). Run it with Java 11 or newer:
//
//     java PartitionerVectors.java DIR_0.8.0 DIR_0.8.1.1 DIR_0.8.2.2 > partitioner_vectors.json
//
// Each folder has its own class loader, so one process runs all three. The output is the same in
// each run. test_partitioner.py reads the file and explains its fields.

import java.io.File;
import java.io.PrintStream;
import java.lang.reflect.Array;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;

public class PartitionerVectors {
    static final int[] COUNTS = {1, 2, 3, 7, 12, 100};
    static final String[] VERSIONS = {"0.8.0", "0.8.1.1", "0.8.2.2"};
    static final int[] EDGES = {
        Integer.MIN_VALUE, Integer.MIN_VALUE + 1, -2, -1, 0, 1, Integer.MAX_VALUE};

    /** kafka.producer of one version: its partitioners and its abs. */
    static class Scala {
        final Object ofObjects;
        final Object ofBytes;
        final Method partition;
        final Object utils;
        final Method abs;

        Scala(ClassLoader loader) throws Exception {
            Class<?> properties = loader.loadClass("kafka.utils.VerifiableProperties");
            ofObjects = loader.loadClass("kafka.producer.DefaultPartitioner")
                .getConstructor(properties).newInstance((Object) null);
            ofBytes = loader.loadClass("kafka.producer.ByteArrayPartitioner")
                .getConstructor(properties).newInstance((Object) null);
            partition = loader.loadClass("kafka.producer.Partitioner")
                .getMethod("partition", Object.class, int.class);
            utils = loader.loadClass("kafka.utils.Utils$").getField("MODULE$").get(null);
            abs = utils.getClass().getMethod("abs", int.class);
        }

        int partition(Object key, int count) throws Exception {
            Object partitioner = key instanceof byte[] ? ofBytes : ofObjects;
            return (Integer) partition.invoke(partitioner, key, count);
        }

        int abs(int value) throws Exception {
            return (Integer) abs.invoke(utils, value);
        }
    }

    /** kafka-clients 0.8.2.2: the Java producer. */
    static class Client {
        final ClassLoader loader;
        final Method murmur2;
        final Object partitioner;
        final Method partition;
        final Constructor<?> record;

        Client(ClassLoader loader) throws Exception {
            this.loader = loader;
            murmur2 = loader.loadClass("org.apache.kafka.common.utils.Utils")
                .getMethod("murmur2", byte[].class);
            String producer = "org.apache.kafka.clients.producer.";
            partitioner = loader.loadClass(producer + "internals.Partitioner")
                .getConstructor().newInstance();
            Class<?> recordClass = loader.loadClass(producer + "ProducerRecord");
            record = recordClass.getConstructor(String.class, Object.class, Object.class);
            partition = partitioner.getClass().getMethod(
                "partition", recordClass, loader.loadClass("org.apache.kafka.common.Cluster"));
        }

        int murmur2(byte[] key) throws Exception {
            return (Integer) murmur2.invoke(null, (Object) key);
        }

        /** The topic "t" with `count` partitions, of which only `available` have a leader. */
        Object cluster(int count, List<Integer> available) throws Exception {
            Class<?> nodeClass = loader.loadClass("org.apache.kafka.common.Node");
            Object node = nodeClass.getConstructor(int.class, String.class, int.class)
                .newInstance(1, "localhost", 9092);
            Object nodes = Array.newInstance(nodeClass, 0);
            Class<?> nodesClass = nodes.getClass();
            Constructor<?> info = loader.loadClass("org.apache.kafka.common.PartitionInfo")
                .getConstructor(String.class, int.class, nodeClass, nodesClass, nodesClass);
            List<Object> partitions = new ArrayList<>();
            for (int id = 0; id < count; id++) {
                partitions.add(info.newInstance(
                    "t", id, available.contains(id) ? node : null, nodes, nodes));
            }
            return loader.loadClass("org.apache.kafka.common.Cluster")
                .getConstructor(Collection.class, Collection.class)
                .newInstance(Collections.singletonList(node), partitions);
        }

        int partition(byte[] key, Object cluster) throws Exception {
            return (Integer) partition.invoke(
                partitioner, record.newInstance("t", key, new byte[0]), cluster);
        }

        /** The counter starts at random: set it. */
        void startAt(int counter) throws Exception {
            Field field = partitioner.getClass().getDeclaredField("counter");
            field.setAccessible(true);
            ((AtomicInteger) field.get(partitioner)).set(counter);
        }
    }

    static ClassLoader jars(String folder) throws Exception {
        List<URL> urls = new ArrayList<>();
        for (File file : new File(folder).listFiles()) {
            if (file.getName().endsWith(".jar")) urls.add(file.toURI().toURL());
        }
        return new URLClassLoader(urls.toArray(new URL[0]), ClassLoader.getPlatformClassLoader());
    }

    /** Seven digits of base 31, which cover all 32 bits: what has to be added to reach `target`. */
    static int[] digits(int target, int without) {
        long rest = (target - without) & 0xffffffffL;
        int[] digits = new int[7];
        for (int i = 6; i >= 0; i--) {
            digits[i] = (int) (rest % 31);
            rest /= 31;
        }
        return digits;
    }

    static byte[] bytesOfHash(int target) {
        byte[] key = new byte[7];
        int[] digits = digits(target, Arrays.hashCode(key));
        for (int i = 0; i < 7; i++) key[i] = (byte) digits[i];
        if (Arrays.hashCode(key) != target) throw new AssertionError();
        return key;
    }

    static String stringOfHash(int target) {
        int[] digits = digits(target, "AAAAAAA".hashCode());
        StringBuilder key = new StringBuilder();
        for (int digit : digits) key.append((char) ('A' + digit));
        if (key.toString().hashCode() != target) throw new AssertionError();
        return key.toString();
    }

    static List<byte[]> bytesKeys() {
        List<byte[]> keys = new ArrayList<>();
        Random random = new Random(8);
        for (int length = 0; length <= 40; length++) {
            byte[] key = new byte[length];
            random.nextBytes(key);
            keys.add(key);
        }
        for (int length = 1; length <= 5; length++) {
            byte[] high = new byte[length];
            Arrays.fill(high, (byte) 0xff);
            keys.add(high);
            keys.add(new byte[length]);
        }
        keys.add("polygenelubricants".getBytes(StandardCharsets.US_ASCII));
        for (int edge : EDGES) keys.add(bytesOfHash(edge));
        byte[] large = new byte[1000];
        random.nextBytes(large);
        keys.add(large);
        return keys;
    }

    static List<String> stringKeys() {
        List<String> keys = new ArrayList<>(Arrays.asList(
            "", "a", "key", "key-0", "key-1", "user:4711", "polygenelubricants",
            "\0", "a\0b", "\u007f", "sch\u00fcssel", "\u00df", "\u00ff", "\u0100",
            "\u043a\u043b\u044e\u0447",
            "\u65e5\u672c\u8a9e", "\u20ac", "\uffff", "\ufeffbom", "e\u0301",
            "\ud83d\ude00", "a\ud83d\ude00b", "\ud835\udcb3\ud835\udcb4", "\ud800\udc00",
            "\udbff\udfff", "\ud83d\udc69\u200d\ud83d\udc67"));
        Random random = new Random(8);
        for (int length = 0; length <= 40; length++) {
            StringBuilder key = new StringBuilder();
            for (int i = 0; i < length; i++) key.append((char) (' ' + random.nextInt(95)));
            keys.add(key.toString());
        }
        for (int edge : EDGES) keys.add(stringOfHash(edge));
        // Half a surrogate pair: it is hashed unchanged, but sent as a question mark.
        keys.add("\ud83d");
        keys.add("a\ude00b");
        return keys;
    }

    static String hex(byte[] data) {
        StringBuilder text = new StringBuilder();
        for (byte one : data) text.append(String.format("%02x", one));
        return text.toString();
    }

    static String quoted(String text) {
        return '"' + text + '"';
    }

    static String escaped(String text) {
        StringBuilder escaped = new StringBuilder();
        for (char one : text.toCharArray()) {
            if (one < ' ' || one > '~' || one == '"' || one == '\\') {
                escaped.append(String.format("\\u%04x", (int) one));
            } else {
                escaped.append(one);
            }
        }
        return escaped.toString();
    }

    static String list(List<Integer> numbers) {
        return numbers.stream().map(String::valueOf).collect(Collectors.joining(", ", "[", "]"));
    }

    static String partitions(Scala[] scala, Object key) throws Exception {
        List<String> fields = new ArrayList<>();
        for (int i = 0; i < scala.length; i++) {
            List<Integer> partitions = new ArrayList<>();
            for (int count : COUNTS) partitions.add(scala[i].partition(key, count));
            fields.add(quoted(VERSIONS[i]) + ": " + list(partitions));
        }
        return "{" + String.join(", ", fields) + "}";
    }

    static void section(PrintStream out, String name, List<String> entries, boolean last) {
        out.println("  " + quoted(name) + ": [");
        out.println("    " + String.join(",\n    ", entries));
        out.println(last ? "  ]" : "  ],");
    }

    public static void main(String[] folders) throws Exception {
        Scala[] scala = new Scala[VERSIONS.length];
        for (int i = 0; i < scala.length; i++) scala[i] = new Scala(jars(folders[i]));
        Client client = new Client(jars(folders[2]));
        Object[] clusters = new Object[COUNTS.length];
        for (int i = 0; i < COUNTS.length; i++) {
            clusters[i] = client.cluster(COUNTS[i], Collections.emptyList());
        }
        PrintStream out = new PrintStream(System.out, true, "US-ASCII");
        out.println("{");
        out.println("  \"partition_counts\": "
            + list(Arrays.stream(COUNTS).boxed().collect(Collectors.toList())) + ",");

        List<String> entries = new ArrayList<>();
        for (byte[] key : bytesKeys()) {
            List<Integer> java = new ArrayList<>();
            for (Object cluster : clusters) java.add(client.partition(key, cluster));
            entries.add("{\"key\": " + quoted(hex(key)) + ", \"hash_code\": " + Arrays.hashCode(key)
                + ", \"murmur2\": " + client.murmur2(key) + ", \"java\": " + list(java)
                + ", \"scala\": " + partitions(scala, key) + "}");
            // The default partitioner of all three takes Object.hashCode of an array, which doesn't
            // depend on its content. So only the choices of ByteArrayPartitioner are vectors.
            for (Scala one : scala) {
                int expected = one.abs(key.hashCode()) % 1000;
                if ((Integer) one.partition.invoke(one.ofObjects, key, 1000) != expected) {
                    throw new AssertionError("DefaultPartitioner hashes the content");
                }
            }
        }
        section(out, "bytes", entries, false);

        entries = new ArrayList<>();
        for (String key : stringKeys()) {
            entries.add("{\"key\": " + quoted(escaped(key))
                + ", \"utf_8\": " + quoted(hex(key.getBytes(StandardCharsets.UTF_8)))
                + ", \"hash_code\": " + key.hashCode()
                + ", \"scala\": " + partitions(scala, key) + "}");
        }
        section(out, "strings", entries, false);

        entries = new ArrayList<>();
        for (int value : EDGES) {
            List<String> fields = new ArrayList<>();
            for (int i = 0; i < scala.length; i++) {
                fields.add(quoted(VERSIONS[i]) + ": " + scala[i].abs(value));
            }
            entries.add("{\"value\": " + value + ", \"scala\": {"
                + String.join(", ", fields) + "}}");
        }
        section(out, "abs", entries, false);

        entries = new ArrayList<>();
        for (List<Integer> available : Arrays.asList(
                Arrays.asList(0, 1, 2, 3, 4), Arrays.asList(1, 3), Arrays.asList(4),
                Collections.<Integer>emptyList())) {
            Object cluster = client.cluster(5, available);
            client.startAt(0);
            List<Integer> picks = new ArrayList<>();
            for (int i = 0; i < 12; i++) picks.add(client.partition(null, cluster));
            entries.add("{\"partitions\": 5, \"available\": " + list(available)
                + ", \"picks\": " + list(picks) + "}");
        }
        section(out, "java_without_key", entries, true);
        out.println("}");
    }
}
