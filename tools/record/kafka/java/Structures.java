import java.nio.ByteBuffer;
import java.util.*;
import java.util.jar.*;
import org.apache.kafka.common.protocol.*;
import org.apache.kafka.common.protocol.types.*;

/** Every structure of every version that the jars on the class path know, and that is no request or
 *  response, as JSON lines: a random instance, its bytes, and what they must decode to.
 *
 *  Structures SEED
 *
 *  Made as Messages makes messages, and compiled together with it. */
class Structures {
    public static void main(String[] args) throws Exception {
        Messages.random = new Random(Long.parseLong(args[0]));
        for (Class<?> type : generated()) {
            Schema[] schemas = (Schema[]) type.getField("SCHEMAS").get(null);
            for (short version = 0; version < schemas.length; version++) {
                if (schemas[version] != null) vector(type, version, schemas[version]);
            }
        }
    }

    static void vector(Class<?> type, short version, Schema schema) throws Exception {
        ByteBuffer data;
        Struct struct;
        do {
            struct = Messages.struct(schema);
            data = ByteBuffer.allocate(1 << 20);
            schema.write(data, struct);
            data.flip();
        } while (!reads((Message) type.getConstructor().newInstance(), data.duplicate(), version));
        System.out.println("{\"name\":\"" + type.getSimpleName() + "\",\"version\":" + version + ",\"data\":\""
            + HexFormat.of().formatHex(data.array(), 0, data.limit()) + "\",\"body\":" + Messages.json(schema, struct) + "}");
    }

    /** Whether the class reads all of it. A Schema writes the null of a tagged struct as none does. */
    static boolean reads(Message message, ByteBuffer data, short version) {
        try {
            message.read(new ByteBufferAccessor(data), version);
            return !data.hasRemaining();
        } catch (RuntimeException error) {
            return false;
        }
    }

    /** Classes that Kafka's generator made for what is neither request nor response nor header. */
    static Collection<Class<?>> generated() throws Exception {
        var found = new TreeMap<String, Class<?>>();
        for (String part : System.getProperty("java.class.path").split(":")) {
            if (!part.endsWith(".jar") || !part.contains("kafka")) continue;
            try (var jar = new JarFile(part)) {
                for (JarEntry entry : Collections.list(jar.entries())) {
                    String name = entry.getName();
                    if (!name.matches("org/apache/kafka/(.*/generated|common/metadata|common/message)/[A-Za-z]+\\.class")) continue;
                    if (name.matches(".*(RequestData|ResponseData|HeaderData|JsonConverter)\\.class")) continue;
                    Class<?> type = Class.forName(name.replace('/', '.').replace(".class", ""));
                    if (Message.class.isAssignableFrom(type) && !type.isInterface()) found.put(type.getSimpleName(), type);
                }
            }
        }
        return found.values();
    }
}
