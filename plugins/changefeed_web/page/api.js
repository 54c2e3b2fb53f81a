// Calls of our REST API, below the folder that this page is in, with the session of Airflow's page.

export class Refused extends Error {
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
    throw new Refused(0, "Airflow does not answer. It may be restarting, or the network is gone.");
  }
  const text = await answer.text();
  let value = null;
  try {
    value = text ? JSON.parse(text) : null;
  } catch {
    value = { detail: text.slice(0, 500) };
  }
  if (!answer.ok) throw new Refused(answer.status, told(answer.status, value));
  return { value, etag: answer.headers.get("ETag") };
}

export const get = async (path) => (await call("GET", path)).value;
export const post = async (path, body) => (await call("POST", path, body)).value;

function told(status, value) {
  if (status === 401) return "You are not logged in any more. Reload Airflow and log in.";
  const detail = value && value.detail;
  if (Array.isArray(detail)) return detail.map((one) => [one.loc.slice(1).join("."), one.msg].filter(Boolean).join(": ")).join("\n");
  return detail ? String(detail) : `Airflow answered with status ${status}.`;
}

// Airflow's own pages: this one is in a frame of it.
const root = location.pathname.replace(/\/changefeed\/.*$/, "");
export const airflow = (href) => root + href;
