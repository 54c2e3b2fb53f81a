// Calls the REST API at api/, relative to this page, with the session of Airflow's page.

export class RequestError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export async function call(method, path, body, headers = {}) {
  let answer;
  try {
    answer = await fetch(`api/${path}`, {
      method,
      headers: body === undefined ? headers : { "Content-Type": "application/json", ...headers },
      body: body === undefined ? undefined : JSON.stringify(body),
      credentials: "same-origin",
    });
  } catch {
    throw new RequestError(0, "Airflow does not answer. It may be restarting, or the network is down.");
  }
  const text = await answer.text();
  let value = null;
  try {
    value = text ? JSON.parse(text) : null;
  } catch {
    value = { detail: text.slice(0, 500) };
  }
  if (!answer.ok) throw new RequestError(answer.status, messageOf(answer.status, value));
  return { value, etag: answer.headers.get("ETag") };
}

export const get = async (path) => (await call("GET", path)).value;
export const post = async (path, body) => (await call("POST", path, body)).value;

const EMPTY = new Set(["missing", "string_too_short"]);

function messageOf(status, value) {
  if (status === 401) return "Your session has ended. Reload Airflow and log in.";
  const detail = value && value.detail;
  if (Array.isArray(detail)) return detail.map((one) => [one.loc.slice(1).join("."), EMPTY.has(one.type) ? "a value is required" : one.msg].filter(Boolean).join(": ")).join("\n");
  return detail ? String(detail) : `Airflow answered with status ${status}.`;
}

// The address of one of Airflow's own pages, which show this page in a frame.
const root = location.pathname.replace(/\/changefeed\/.*$/, "");
export const airflow = (href) => root + href;
