// Questions to the worker, with its token where there is one: it stays in this tab.

const PATIENCE_MS = 4000;

// What the worker says. Throws an Error with its sentence, and its `status` where there was an answer at all.
export async function ask(path) {
  const token = sessionStorage.getItem("token");
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const answer = await fetch(path, { headers, cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS) });
  const said = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(said.error), { status: answer.status });
  return said;
}
