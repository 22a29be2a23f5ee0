import java.lang.reflect.*;
import java.util.*;
import org.apache.kafka.common.config.ConfigDef;

/** The names of the configurations that Kafka defines for what it keeps configurations of, one a
 *  line, but those of type PASSWORD: brokers, topics, groups, client metrics. */
class Configs {
    static final List<String> WHERE = List.of(
        "kafka.server.KafkaConfig",
        "org.apache.kafka.storage.internals.log.LogConfig",
        "org.apache.kafka.coordinator.group.GroupConfig",
        "org.apache.kafka.server.metrics.ClientMetricsConfigs");

    public static void main(String[] args) throws Exception {
        var open = new TreeSet<String>();
        var secret = new TreeSet<String>();
        for (String name : WHERE) {
            Class<?> type;
            try {
                type = Class.forName(name);
            } catch (ClassNotFoundException newer) {
                continue;
            }
            for (ConfigDef def : definitions(type)) {
                def.configKeys().forEach((key, about) -> (about.type == ConfigDef.Type.PASSWORD ? secret : open).add(key));
            }
        }
        open.removeAll(secret);
        open.forEach(System.out::println);
    }

    /** What a class keeps in static fields, or gives by static methods without arguments. */
    static List<ConfigDef> definitions(Class<?> type) throws ReflectiveOperationException {
        var found = new ArrayList<ConfigDef>();
        for (Field field : type.getDeclaredFields()) {
            if (Modifier.isStatic(field.getModifiers()) && ConfigDef.class.isAssignableFrom(field.getType())) {
                field.setAccessible(true);
                found.add((ConfigDef) field.get(null));
            }
        }
        for (Method method : type.getDeclaredMethods()) {
            boolean gives = method.getParameterCount() == 0 && ConfigDef.class.isAssignableFrom(method.getReturnType());
            if (gives && Modifier.isStatic(method.getModifiers())) {
                method.setAccessible(true);
                found.add((ConfigDef) method.invoke(null));
            }
        }
        return found;
    }
}
