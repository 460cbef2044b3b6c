import com.github.javacliparser.ClassOption;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import moa.evaluation.preview.LearningCurve;
import moa.tasks.MainTask;

/**
 * Runs the MOA tasks on stdin, one a line, and answers each with a line of JSON: what the last entry of an evaluation
 * says; nothing of another task.
 */
class Moa {
    public static void main(String[] arguments) throws Exception {
        BufferedReader tasks = new BufferedReader(new InputStreamReader(System.in));
        System.out.println("{}");
        for (String line; (line = tasks.readLine()) != null;) {
            MainTask task = (MainTask) ClassOption.cliStringToObject(line, MainTask.class, null);
            task.prepareForUse();
            Object told = task.doTask();
            System.out.println(told instanceof LearningCurve curve ? answer(curve) : "{}");
        }
    }

    private static String answer(LearningCurve curve) {
        List<String> names = Arrays.asList(curve.headerToString().split(","));
        String[] last = curve.entryToString(curve.numEntries() - 1).split(",");
        return String.format(
                Locale.ROOT,
                "{\"samples\": %s, \"cpu_s\": %s, \"correct_percent\": %s, \"model_bytes\": %s}",
                last[names.indexOf("classified instances")],
                last[names.indexOf("evaluation time (cpu seconds)")],
                last[names.indexOf("classifications correct (percent)")],
                last[names.indexOf("model serialized size (bytes)")]);
    }
}
