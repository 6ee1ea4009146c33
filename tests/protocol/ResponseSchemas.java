// Writes response_schemas.json: the layouts of responses as Kafka itself declares them, with the
// fields that may be null.
//
// It needs the jars kafka-clients-0.10.2.2.jar and kafka-clients-3.9.1.jar with slf4j-api, each in a
// folder of its own (`mvn dependency:copy-dependencies`). Run it with Java 17:
//
//     java ResponseSchemas.java DIR_0.10.2.2 DIR_3.9.1 > response_schemas.json
//
// Each folder has its own class loader. The output is the same in each run.
// test_nullable_fields.py reads the file and explains its fields.

import java.io.File;
import java.lang.reflect.Array;
import java.lang.reflect.Method;
import java.net.URL;
import java.net.URLClassLoader;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Optional;

public class ResponseSchemas {
    static final int LAST_VERSION = 3;
    static final String[][] APIS = {
        {"PRODUCE", "Produce", "0"}, {"FETCH", "Fetch", "1"}, {"LIST_OFFSETS", "ListOffsets", "2"},
        {"METADATA", "Metadata", "3"}, {"OFFSET_COMMIT", "OffsetCommit", "8"},
        {"OFFSET_FETCH", "OffsetFetch", "9"}, {"GROUP_COORDINATOR", "FindCoordinator", "10"},
        {"JOIN_GROUP", "JoinGroup", "11"}, {"HEARTBEAT", "Heartbeat", "12"},
        {"LEAVE_GROUP", "LeaveGroup", "13"}, {"SYNC_GROUP", "SyncGroup", "14"},
        {"DESCRIBE_GROUPS", "DescribeGroups", "15"}, {"LIST_GROUPS", "ListGroups", "16"},
        {"SASL_HANDSHAKE", "SaslHandshake", "17"}, {"API_VERSIONS", "ApiVersions", "18"},
        {"CREATE_TOPICS", "CreateTopics", "19"}, {"DELETE_TOPICS", "DeleteTopics", "20"},
        {"SASL_AUTHENTICATE", "SaslAuthenticate", "36"}, {"DELETE_GROUPS", "DeleteGroups", "42"}};

    static Object call(Object target, String method) throws Exception {
        Method found = target.getClass().getMethod(method);
        found.setAccessible(true);
        return found.invoke(target);
    }

    static ClassLoader loader(String folder) throws Exception {
        List<URL> urls = new ArrayList<>();
        for (File jar : new File(folder).listFiles()) {
            String name = jar.getName();
            if (name.startsWith("kafka-clients") || name.startsWith("slf4j-api")) {
                urls.add(jar.toURI().toURL());
            }
        }
        return new URLClassLoader(urls.toArray(new URL[0]), ClassLoader.getPlatformClassLoader());
    }

    /** The fields of a schema, one JSON array each: name, type; of an array also its items' type. */
    static String fields(Object schema) throws Exception {
        List<String> parts = new ArrayList<>();
        for (Object field : (Object[]) call(schema, "fields")) {
            Object definition = field;
            try {
                definition = field.getClass().getField("def").get(field);  // BoundField, from 1.0 on
            } catch (NoSuchFieldException before) {
                // Field itself
            }
            String name = (String) definition.getClass().getField("name").get(definition);
            Object type = definition.getClass().getField("type").get(definition);
            if (type.getClass().getSimpleName().equals("Schema")) {  // fields in a row, on the wire
                String inner = fields(type);
                parts.add(inner.substring(1, inner.length() - 1));
            } else {
                parts.add("[\"" + name + "\", " + type(type) + "]");
            }
        }
        return "[" + String.join(", ", parts) + "]";
    }

    static Object itemType(Object array) throws Exception {
        try {
            return ((Optional<?>) call(array, "arrayElementType")).get();
        } catch (NoSuchMethodException before) {
            return call(array, "type");
        }
    }

    static String type(Object type) throws Exception {
        String kind = type.getClass().getSimpleName();
        boolean nullable = (boolean) call(type, "isNullable");
        if (kind.equals("Schema")) {
            return fields(type);
        }
        if (kind.equals("ArrayOf")) {
            return "{\"array\": " + type(itemType(type)) + ", \"nullable\": " + nullable + "}";
        }
        String name = type.toString().toLowerCase(Locale.ROOT).replace("nullable_", "");
        return "{\"type\": \"" + name + "\", \"nullable\": " + nullable + "}";
    }

    static Object schemas(ClassLoader loader, String[] api) throws Exception {
        try {
            Class<?> data = loader.loadClass(
                "org.apache.kafka.common.message." + api[1] + "ResponseData");
            return data.getField("SCHEMAS").get(null);
        } catch (ClassNotFoundException before) {
            Class<?> protocol = loader.loadClass("org.apache.kafka.common.protocol.Protocol");
            Object all = protocol.getField("RESPONSES").get(null);
            int key = Integer.parseInt(api[2]);
            return key < Array.getLength(all) ? Array.get(all, key) : new Object[0];
        }
    }

    public static void main(String[] folders) throws Exception {
        String[] releases = {"0.10.2.2", "3.9.1"};
        List<String> lines = new ArrayList<>();
        for (int at = 0; at < releases.length; at++) {
            ClassLoader loader = loader(folders[at]);
            for (String[] api : APIS) {
                Object schemas = schemas(loader, api);
                int count = Math.min(Array.getLength(schemas), LAST_VERSION + 1);
                for (int version = 0; version < count; version++) {
                    Object schema = Array.get(schemas, version);
                    if (schema != null) {
                        lines.add("  {\"release\": \"" + releases[at] + "\", \"api\": \"" + api[0]
                            + "\", \"version\": " + version + ",\n   \"fields\": "
                            + fields(schema) + "}");
                    }
                }
            }
        }
        System.out.println("[\n" + String.join(",\n", lines) + "\n]");
    }
}
