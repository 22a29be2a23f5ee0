import java.nio.ByteBuffer;
import java.util.*;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.*;
import org.apache.kafka.common.protocol.*;
import org.apache.kafka.common.protocol.types.*;

/** Random instances of every message version that the kafka-clients jar on the class path knows, as
 *  JSON lines: the frame, and what it must decode to.
 *
 *  Messages SEED N   N instances of each
 *
 *  Random values go into a Struct of the message's own Schema, whose bytes are the frame. Kafka's
 *  generated class then reads the frame, so a frame that it does not read to the end is never given.
 *  A Schema of 3.9 does not know that a struct can be null: it gives no vectors of such messages. */
class Messages {
    static Random random;

    public static void main(String[] args) throws Exception {
        random = new Random(Long.parseLong(args[0]));
        for (ApiMessageType api : ApiMessageType.values()) {
            for (short version = api.lowestSupportedVersion(); version <= api.highestSupportedVersion(true); version++) {
                for (boolean request : new boolean[] {true, false}) {
                    Schema schema = (request ? api.requestSchemas() : api.responseSchemas())[version];
                    short header = request ? api.requestHeaderVersion(version) : api.responseHeaderVersion(version);
                    String about = "\"api_key\":" + api.apiKey() + ",\"api\":\"" + api.name + "\",\"direction\":\""
                        + (request ? "request" : "response") + "\",\"version\":" + version;
                    if (KNOWS_NULL || !hasStruct(schema)) {
                        for (int i = 0; i < Integer.parseInt(args[1]); i++) vector(api, version, request, schema, header, about);
                    }
                }
            }
        }
    }

    static void vector(ApiMessageType api, short version, boolean request, Schema schema, short header, String about) {
        int correlation = random.nextInt();
        String client = random.nextInt(6) == 0 ? null : text();
        Struct body = struct(schema);
        ByteBuffer frame = ByteBuffer.allocate(1 << 20);
        var out = new ByteBufferAccessor(frame);
        if (request) {
            var head = new RequestHeaderData().setRequestApiKey(api.apiKey()).setRequestApiVersion(version).setCorrelationId(correlation);
            if (header >= 1) head.setClientId(client);
            var cache = new ObjectSerializationCache();
            head.size(cache, header);  // it fills the cache that write reads
            head.write(out, cache, header);
        } else {
            new ResponseHeaderData().setCorrelationId(correlation).write(out, new ObjectSerializationCache(), header);
        }
        int start = frame.position();
        schema.write(frame, body);
        frame.flip();
        var read = new ByteBufferAccessor(frame.slice(start, frame.limit() - start));
        (request ? api.newRequest() : api.newResponse()).read(read, version);
        if (read.remaining() != 0) throw new AssertionError(about + " leaves " + read.remaining() + " bytes");
        System.out.println("{" + about + ",\"frame\":\"" + HexFormat.of().formatHex(frame.array(), 0, frame.limit())
            + "\",\"expect\":{\"correlation_id\":" + correlation
            + (request && header >= 1 ? ",\"client_id\":" + (client == null ? null : "\"" + client + "\"") : "")
            + ",\"body\":" + json(schema, body) + "}}");
    }

    // What a schema is

    static final boolean KNOWS_NULL = MessageUtil.class.getResource("types/NullableSchema.class") != null;

    static boolean hasStruct(Type type) {
        if (type instanceof Schema schema) {
            return Arrays.stream(schema.fields()).anyMatch(field -> field.def.type instanceof Schema || hasStruct(field.def.type));
        }
        return type.arrayElementType().map(Messages::hasStruct).orElse(false);
    }

    /** What 3.9 keeps to itself. */
    static SortedMap<Integer, Field> fields(TaggedFields tagged) {
        try {
            var known = TaggedFields.class.getDeclaredField("fields");
            known.setAccessible(true);
            @SuppressWarnings("unchecked") var fields = (Map<Integer, Field>) known.get(tagged);
            return new TreeMap<>(fields);
        } catch (ReflectiveOperationException error) {
            throw new AssertionError(error);
        }
    }

    static String plain(Type type) {
        String name = type.toString().replace("COMPACT_", "").replace("NULLABLE_", "").toLowerCase();
        return switch (name) {
            case "boolean" -> "bool";
            case "unsigned_int32" -> "uint32";
            default -> name;
        };
    }

    // A random value, of the Java class that the type wants

    static Struct struct(Schema schema) {
        Struct struct = new Struct(schema);
        for (BoundField field : schema.fields()) struct.set(field, value(field.def.type));
        return struct;
    }

    static Object value(Type type) {
        if (type instanceof TaggedFields tagged) {
            var values = new TreeMap<Integer, Object>();
            fields(tagged).forEach((tag, field) -> {
                if (random.nextBoolean()) values.put(tag, value(field.type));
            });
            return values;
        }
        if (type.isNullable() && random.nextInt(5) == 0) return null;
        if (type.isArray()) {
            Object[] items = new Object[random.nextInt(3)];
            for (int i = 0; i < items.length; i++) items[i] = value(type.arrayElementType().get());
            return items;
        }
        if (type instanceof Schema schema) return struct(schema);
        return switch (plain(type)) {
            case "bool" -> random.nextBoolean();
            case "int8" -> (byte) number();
            case "int16" -> (short) number();
            case "uint16" -> (int) number() & 0xffff;
            case "int32" -> (int) number();
            case "uint32" -> number() & 0xffffffffL;
            case "int64" -> number();
            case "float64" -> random.nextGaussian();
            case "uuid" -> new Uuid(number(), number());
            case "string" -> text();
            case "bytes" -> ByteBuffer.wrap(bytes());
            case "records" -> records(ByteBuffer.wrap(bytes()));
            default -> throw new AssertionError(type);
        };
    }

    /** MemoryRecords, which stands in another package since 4.2. */
    static Object records(ByteBuffer bytes) {
        for (String where : List.of("record.internal", "record")) {
            try {
                return Class.forName("org.apache.kafka.common." + where + ".MemoryRecords")
                    .getMethod("readableRecords", ByteBuffer.class).invoke(null, bytes);
            } catch (ClassNotFoundException absent) {
                continue;
            } catch (ReflectiveOperationException error) {
                throw new AssertionError(error);
            }
        }
        throw new AssertionError("no MemoryRecords");
    }

    static ByteBuffer call(Object records, String method) {
        try {
            return (ByteBuffer) records.getClass().getMethod(method).invoke(records);
        } catch (ReflectiveOperationException error) {
            throw new AssertionError(error);
        }
    }

    static long number() {
        return switch (random.nextInt(4)) {
            case 0 -> random.nextInt(3) - 1;
            case 1 -> random.nextInt(300);
            default -> random.nextLong();
        };
    }

    static String text() {
        return List.of("", "t", "orders", "naïve-töpic-ü", "x".repeat(130)).get(random.nextInt(5));
    }

    static byte[] bytes() {
        byte[] some = new byte[random.nextInt(40)];
        random.nextBytes(some);
        return some;
    }

    // The same value as JSON

    static String json(Schema schema, Struct struct) {
        var pairs = new ArrayList<String>();
        for (BoundField field : schema.fields()) {
            if (field.def.type instanceof TaggedFields tagged) {
                @SuppressWarnings("unchecked") var values = (Map<Integer, Object>) struct.get(field);
                values.forEach((tag, value) -> pairs.add(json(fields(tagged).get(tag), value)));
            } else {
                pairs.add(json(field.def, struct.get(field)));
            }
        }
        return "{" + String.join(",", pairs) + "}";
    }

    static String json(Field field, Object value) {
        return "\"" + field.name + "\":" + json(field.type, value);
    }

    static String json(Type type, Object value) {
        if (value instanceof Object[] items) {
            return "[" + String.join(",", Arrays.stream(items).map(item -> json(type.arrayElementType().get(), item)).toList()) + "]";
        }
        if (value instanceof Struct struct) return json((Schema) type, struct);
        if (value instanceof String || value instanceof Uuid) return "\"" + value + "\"";
        if (value instanceof ByteBuffer bytes) return hex(bytes);
        if (plain(type).equals("records") && value != null) return hex(call(value, "buffer"));
        return String.valueOf(value);
    }

    static String hex(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return "{\"hex\":\"" + HexFormat.of().formatHex(bytes) + "\"}";
    }
}
