// Print what EmbeddedHeaderUtils of spring-cloud-stream writes and reads, as JSON.
//
//     mvn dependency:copy-dependencies (a POM with org.springframework.cloud:spring-cloud-stream)
//     java -cp "<jars of 1.3.4.RELEASE>/*" EmbeddedHeaderVectors.java > spring_1.3.4.json
//     java -cp "<jars of 4.0.1>/*" EmbeddedHeaderVectors.java > spring_4.0.1.json
//
// "written": for each case the headers as text (null for a value that isn't a string), the payload
// and the envelope; a name of an exception in place of the envelope if the class raises one.
// "read": for each value the payload and the headers as JSON text, or the exception.

import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.springframework.cloud.stream.binder.EmbeddedHeaderUtils;
import org.springframework.cloud.stream.binder.MessageValues;

public class EmbeddedHeaderVectors {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final HexFormat HEX = HexFormat.of();

    public static void main(String[] args) throws Exception {
        List<Object> written = new ArrayList<>();
        written.add(write("one string", bytes("payload"), "contentType", "text/plain"));
        written.add(write("two strings", bytes("p"), "a", "1", "b", "two"));
        written.add(write("no headers", bytes("payload")));
        written.add(write("no headers, 0xff", new byte[] {-1, -2, 0, 1}));
        written.add(write("header and 0xff", new byte[] {-1, 0}, "a", "b"));
        written.add(write("empty payload", new byte[0], "a", "b"));
        written.add(write("null payload", null, "a", "b"));
        written.add(write("null header", bytes("p"), "a", null, "b", "c"));
        written.add(write("empty name and value", bytes("p"), "", ""));
        written.add(write("text", bytes("p"), "t", "ä € \uD83D\uDE00 \" \\ / \u007f"));
        written.add(write("control characters", bytes("p"), "t", "\0\b\t\n\f\r\u001f"));
        written.add(write("number", bytes("p"), "n", 42));
        written.add(write("long", bytes("p"), "n", Long.MIN_VALUE));
        written.add(write("double", bytes("p"), "n", 1.5e-300));
        written.add(write("boolean", bytes("p"), "n", true));
        written.add(write("list", bytes("p"), "n", List.of(1, "two", List.of())));
        Map<String, Object> map = new TreeMap<>(Map.of("k", "v", "n", 1));
        map.put("nothing", null);
        written.add(write("map", bytes("p"), "n", map));
        written.add(write("bytes", bytes("p"), "n", new byte[] {0, -1, 1}));
        written.add(write("name of 255", bytes("p"), "x".repeat(255), "y"));
        written.add(write("name of 256", bytes("p"), "x".repeat(256), "y"));
        written.add(write("name not in ASCII", bytes("p"), "ä", "y"));
        written.add(write("long value", bytes("p"), "v", "y".repeat(300)));
        written.add(write("255 headers", bytes("p"), many(255)));
        written.add(write("256 headers", bytes("p"), many(256)));

        List<Object> read = new ArrayList<>();
        read.add(read("plain", bytes("payload")));
        read.add(read("empty", new byte[0]));
        read.add(read("mark only", HEX.parseHex("ff")));
        read.add(read("no headers", HEX.parseHex("ff00")));
        read.add(read("no headers, 0xff", HEX.parseHex("ff00ff00aa")));
        read.add(read("null as JSON", envelope("ff0101", "a", "00000004", "null", "p")));
        read.add(read("name in UTF-8", envelope("ff0102", "ä", "00000003", "\"b\"", "p")));
        read.add(read("escapes", envelope("ff0101", "a", "0000000a", "\"\\u00e4\\n\"", "p")));
        read.add(read("one name twice",
            envelope("ff0201", "a", "00000003", "\"1\"", HEX.parseHex("01"), "a",
                HEX.parseHex("00000003"), "\"2\"", "p")));
        read.add(read("cut in a name", envelope("ff0105", "a")));
        read.add(read("cut in a length", envelope("ff0101", "a", "0000")));
        read.add(read("cut in a value", envelope("ff0101", "a", "00000009", "\"b\"")));
        read.add(read("negative length", envelope("ff0101", "a", "ffffffff", "\"b\"")));
        read.add(read("no JSON", envelope("ff0101", "a", "00000003", "abc", "p")));
        read.add(read("missing header", envelope("ff0201", "a", "00000003", "\"b\"")));
        System.out.println("{\"written\": [\n" + lines(written) + "\n], \"read\": [");
        System.out.println(lines(read) + "\n]}");
    }

    private static Map<String, Object> write(String name, byte[] payload, Object... headers) {
        Map<String, Object> values = new LinkedHashMap<>();
        List<Object> texts = new ArrayList<>();
        String[] names = new String[headers.length / 2];
        for (int i = 0; i < names.length; i++) {
            names[i] = (String) headers[2 * i];
            Object value = headers[2 * i + 1];
            values.put(names[i], value);
            List<Object> pair = new ArrayList<>();
            pair.add(names[i]);
            pair.add(value instanceof String ? value : null);
            texts.add(pair);
        }
        Map<String, Object> vector = new LinkedHashMap<>();
        vector.put("name", name);
        vector.put("headers", texts);
        vector.put("payload", payload == null ? null : HEX.formatHex(payload));
        try {
            byte[] made = EmbeddedHeaderUtils.embedHeaders(new MessageValues(payload, values), names);
            vector.put("envelope", HEX.formatHex(made));
            vector.put("read", extracted(made));
        } catch (Exception error) {
            vector.put("error", cause(error));
        }
        return vector;
    }

    private static Map<String, Object> read(String name, byte[] value) {
        Map<String, Object> vector = new LinkedHashMap<>();
        vector.put("name", name);
        vector.put("value", HEX.formatHex(value));
        try {
            vector.put("read", extracted(value));
        } catch (Exception error) {
            vector.put("error", cause(error));
        }
        return vector;
    }

    private static Map<String, Object> extracted(byte[] value) throws Exception {
        MessageValues found = EmbeddedHeaderUtils.extractHeaders(value);
        Map<String, String> headers = new TreeMap<>();
        for (Map.Entry<String, Object> entry : found.entrySet()) {
            headers.put(entry.getKey(), JSON.writeValueAsString(entry.getValue()));
        }
        return new TreeMap<>(
            Map.of("payload", HEX.formatHex((byte[]) found.getPayload()), "headers", headers));
    }

    private static Object[] many(int count) {
        Object[] headers = new Object[2 * count];
        for (int i = 0; i < count; i++) {
            headers[2 * i] = "h" + i;
            headers[2 * i + 1] = "" + i;
        }
        return headers;
    }

    /** Hex, text, hex, text, ... or bytes. */
    private static byte[] envelope(Object... parts) {
        StringBuilder hex = new StringBuilder();
        for (int i = 0; i < parts.length; i++) {
            if (parts[i] instanceof byte[] data) {
                hex.append(HEX.formatHex(data));
            } else if (i == 0 || i == 2) {
                hex.append(parts[i]);
            } else {
                hex.append(HEX.formatHex(bytes((String) parts[i])));
            }
        }
        return HEX.parseHex(hex);
    }

    private static String lines(List<Object> vectors) throws Exception {
        List<String> lines = new ArrayList<>();
        for (Object vector : vectors) {
            lines.add(JSON.writeValueAsString(vector));
        }
        return String.join(",\n", lines);
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static String cause(Throwable error) {
        while (error.getCause() != null) {
            error = error.getCause();
        }
        return error.getClass().getSimpleName();
    }
}
