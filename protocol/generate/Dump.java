import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.types.BoundField;
import org.apache.kafka.common.protocol.types.Field;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.TaggedFields;
import org.apache.kafka.common.protocol.types.Type;

/**
 * Prints every API of the kafka-clients jar it runs with, tab-separated, one (key, version) a line:
 * key, name, version, stable, client, request header, response header, request layout, response layout.
 * client: brokers take it from clients (the rest is between brokers and controllers).
 * The layout language is that of protocol/layout.py.
 */
public class Dump {
    public static void main(String[] args) {
        for (ApiKeys api : ApiKeys.values()) {
            int stable = api.messageType.highestSupportedVersion(false);
            for (int v = api.messageType.lowestSupportedVersion(); v <= api.messageType.highestSupportedVersion(true); v++) {
                System.out.println(String.join("\t",
                    Integer.toString(api.id), api.name, Integer.toString(v), flag(v <= stable), flag(forClients(api)),
                    Integer.toString(api.requestHeaderVersion((short) v)),
                    Integer.toString(api.responseHeaderVersion((short) v)),
                    layout(api.messageType.requestSchemas()[v]), layout(api.messageType.responseSchemas()[v])));
            }
        }
    }

    private static String flag(boolean value) {
        return value ? "1" : "0";
    }

    private static boolean forClients(ApiKeys api) {
        // BROKER, and ZK_BROKER in releases that still had ZooKeeper.
        return !api.clusterAction && api.messageType.listeners().stream().anyMatch(l -> l.name().endsWith("BROKER"));
    }

    private static String layout(Schema schema) {
        String fields = fields(schema);
        return isFlexible(schema) ? ("~ " + fields).strip() : fields;
    }

    private static boolean isFlexible(Schema schema) {
        BoundField[] fields = schema.fields();
        return fields.length > 0 && fields[fields.length - 1].def.type instanceof TaggedFields;
    }

    private static String fields(Schema schema) {
        List<String> written = new ArrayList<>();
        for (BoundField field : schema.fields()) {
            if (field.def.type instanceof TaggedFields tags) {
                tagged(tags).forEach((tag, def) -> written.add("#" + tag + " " + def.name + ":" + type(def.type)));
            } else {
                written.add(field.def.name + ":" + type(field.def.type));
            }
        }
        return String.join(" ", written);
    }

    /** TaggedFields.fields() is public only in later releases. */
    @SuppressWarnings("unchecked")
    private static Map<Integer, Field> tagged(TaggedFields tags) {
        try {
            java.lang.reflect.Field fields = TaggedFields.class.getDeclaredField("fields");
            fields.setAccessible(true);
            return new TreeMap<>((Map<Integer, Field>) fields.get(tags));
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException("this release keeps its tagged fields elsewhere", e);
        }
    }

    private static String type(Type type) {
        String nullable = type.isNullable() ? "?" : "";
        if (type instanceof Schema struct) {
            return "{" + fields(struct) + "}" + nullable;
        }
        if (type.isArray()) {
            Type element = type.arrayElementType().get();
            return "[" + (element instanceof Schema struct ? fields(struct) : type(element)) + "]" + nullable;
        }
        return scalar(type.toString()) + nullable;
    }

    private static String scalar(String name) {
        return switch (name.replace("COMPACT_", "").replace("NULLABLE_", "")) {
            case "BOOLEAN" -> "bool";
            case "INT8" -> "i8";
            case "INT16" -> "i16";
            case "UINT16" -> "u16";
            case "INT32" -> "i32";
            case "UINT32" -> "u32";
            case "INT64" -> "i64";
            case "FLOAT64" -> "f64";
            case "UUID" -> "uuid";
            case "STRING" -> "string";
            case "BYTES" -> "bytes";
            case "RECORDS" -> "records";
            default -> throw new IllegalArgumentException("a type this program does not know: " + name);
        };
    }
}
