// Print the assignments that the classes of Kafka 0.8.2.2 compute for groups in ZooKeeper.
//
//   java -cp "<jars of 0.8.2.2>/*" Vectors.java <zookeeper> <case> ...
//
// Each case is a chroot with a group "g". Each member computes its own assignment, as a consumer
// does. The output is JSON: by case and strategy the partitions of each thread, null if the class
// refuses.

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.function.Function;
import kafka.common.TopicAndPartition;
import kafka.consumer.AssignmentContext;
import kafka.consumer.ConsumerThreadId;
import kafka.consumer.PartitionAssignor;
import kafka.consumer.RangeAssignor;
import kafka.consumer.RoundRobinAssignor;
import kafka.utils.ZKStringSerializer$;
import org.I0Itec.zkclient.ZkClient;
import scala.collection.JavaConversions;

public class Vectors {
    public static void main(String[] args) {
        Map<String, Map<String, String>> cases = new TreeMap<>();
        for (int i = 1; i < args.length; i++) {
            ZkClient zookeeper =
                new ZkClient(args[0] + "/" + args[i], 30000, 30000, ZKStringSerializer$.MODULE$);
            Map<String, String> assignments = new TreeMap<>();
            assignments.put("range", assigned(new RangeAssignor(), zookeeper));
            assignments.put("roundrobin", assigned(new RoundRobinAssignor(), zookeeper));
            cases.put(args[i], assignments);
            zookeeper.close();
        }
        System.out.println(object(cases, assignments -> object(assignments, text -> text)));
    }

    private static String assigned(PartitionAssignor assignor, ZkClient zookeeper) {
        Map<String, Map<String, TreeSet<Integer>>> threads = new TreeMap<>();
        for (String member : zookeeper.getChildren("/consumers/g/ids")) {
            AssignmentContext context = new AssignmentContext("g", member, true, zookeeper);
            Map<TopicAndPartition, ConsumerThreadId> share;
            try {
                share = JavaConversions.mapAsJavaMap(assignor.assign(context));
            } catch (IllegalArgumentException refused) {
                return "null";
            }
            share.forEach((partition, thread) ->
                threads
                    .computeIfAbsent(thread.toString(), key -> new TreeMap<>())
                    .computeIfAbsent(partition.topic(), key -> new TreeSet<>())
                    .add(partition.partition()));
        }
        return object(threads, topics -> object(topics, numbers -> numbers.toString()));
    }

    private static <T> String object(Map<String, T> fields, Function<T, String> written) {
        List<String> parts = new ArrayList<>();
        fields.forEach((name, value) -> parts.add('"' + name + "\": " + written.apply(value)));
        return "{" + String.join(", ", parts) + "}";
    }
}
