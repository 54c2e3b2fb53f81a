// Calls the REST API at api/, relative to this page, with the session of Airflow's page.

export class RequestError extends Error {
  // `fields` has the mistakes in fields of the request's body, by the field's name; `rest` has those of no field. `kind` is
  // the class of the error.
  constructor(status, message, fields = {}, rest = message, kind = "") {
    super(message);
    this.status = status;
    this.kind = kind;
    this.fields = fields;
    this.rest = rest;
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
  if (!answer.ok) throw refusalOf(answer.status, value);
  return { value, etag: answer.headers.get("ETag") };
}

export const get = async (path) => (await call("GET", path)).value;
export const post = async (path, body) => (await call("POST", path, body)).value;

export const REQUIRED = "a value is required";
const EMPTY = new Set(["missing", "string_too_short"]);

function refusalOf(status, value) {
  if (status === 401) return new RequestError(status, "Your session has ended. Reload Airflow and log in.");
  const detail = value && value.detail;
  if (!Array.isArray(detail)) return new RequestError(status, detail ? String(detail) : `Airflow answered with status ${status}.`, {}, undefined, value && value.error);
  const mistakes = detail.map((one) => ({ at: one.loc.slice(1), text: EMPTY.has(one.type) ? REQUIRED : one.msg }));
  const ofFields = mistakes.filter(({ at }) => at.length);
  const fields = Object.fromEntries(ofFields.map(({ at, text }) => [at[0], text]));
  const message = mistakes.map(({ at, text }) => [at.join("."), text].filter(Boolean).join(": ")).join("\n");
  return new RequestError(status, message, fields, mistakes.filter(({ at }) => !at.length).map(({ text }) => text).join("\n"));
}

// The address of one of Airflow's own pages, which show this page in a frame.
const root = location.pathname.replace(/\/changefeed\/.*$/, "");
export const airflow = (href) => root + href;
