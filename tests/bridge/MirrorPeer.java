// MirrorMaker 2's own classes on the records that the bridge writes.
//
//     java -cp <jars> MirrorPeer.java sync <topic> <partition> <upstream> <downstream>
//     java -cp <jars> MirrorPeer.java checkpoint <group> <topic> <partition> <upstream> <downstream> <metadata>
//     java -cp <jars> MirrorPeer.java translate <host:port> <alias> <group>...
//
// The first two print the key and the value (hex) of a record. "translate" prints a line
// "group topic partition offset" for each partition of the groups.

import java.lang.reflect.Constructor;
import java.lang.reflect.Method;
import java.time.Duration;
import java.util.HexFormat;
import java.util.Map;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.mirror.RemoteClusterUtils;

public class MirrorPeer {
    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "sync" -> print("OffsetSync", partition(args, 1), Long.valueOf(args[3]), Long.valueOf(args[4]));
            case "checkpoint" -> print("Checkpoint", args[1], partition(args, 2), Long.valueOf(args[4]),
                    Long.valueOf(args[5]), args[6]);
            case "translate" -> {
                for (int at = 3; at < args.length; at++) {
                    translate(args[1], args[2], args[at]);
                }
            }
            default -> throw new IllegalArgumentException(args[0]);
        }
    }

    private static TopicPartition partition(String[] args, int at) {
        return new TopicPartition(args[at], Integer.parseInt(args[at + 1]));
    }

    private static void print(String name, Object... values) throws Exception {
        Constructor<?> constructor =
                Class.forName("org.apache.kafka.connect.mirror." + name).getDeclaredConstructors()[0];
        constructor.setAccessible(true);
        Object value = constructor.newInstance(values);
        for (String part : new String[] {"recordKey", "recordValue"}) {
            Method method = value.getClass().getDeclaredMethod(part);
            method.setAccessible(true);
            System.out.println(HexFormat.of().formatHex((byte[]) method.invoke(value)));
        }
    }

    private static void translate(String servers, String alias, String group) throws Exception {
        RemoteClusterUtils.translateOffsets(
                        Map.of("bootstrap.servers", servers), alias, group, Duration.ofSeconds(30))
                .forEach((place, offset) -> System.out.println(
                        group + " " + place.topic() + " " + place.partition() + " " + offset.offset()));
    }
}
