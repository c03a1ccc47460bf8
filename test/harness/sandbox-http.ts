import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { Agent, request } from 'node:https';
import { silentLog } from '#src/runtime/log.ts';
import type { Json } from '../../sandbox/api/json-value.ts';
import {
  type SandboxApi,
  type SandboxApiOptions,
  startSandboxApi,
} from '../../sandbox/api/server.ts';

export interface Answer {
  readonly code: number;
  readonly headers: IncomingMessage['headers'];
  readonly text: string;
  readonly body: Json;
}

export interface RequestOptions {
  readonly body?: Json | Buffer;
  readonly headers?: Readonly<Record<string, string>>;
}

/** A sandbox API in this process, with functions that send HTTPS requests to it. */
export interface SandboxHttp {
  readonly api: SandboxApi;
  call(method: string, path: string, options?: RequestOptions): Promise<Answer>;
  patch(type: 'merge' | 'json' | 'strategic' | 'apply', path: string, body: Json): Promise<Answer>;
  close(): Promise<void>;
}

const PATCH = {
  merge: 'application/merge-patch+json',
  json: 'application/json-patch+json',
  strategic: 'application/strategic-merge-patch+json',
  apply: 'application/apply-patch+yaml',
} as const;

export async function openSandboxHttp(
  options: Partial<SandboxApiOptions> = {},
): Promise<SandboxHttp> {
  const api = await startSandboxApi({ log: silentLog, ...options });
  const agent = new Agent({ keepAlive: true, ca: api.ca });
  const send = async (
    method: string,
    path: string,
    { body, headers = {} }: RequestOptions,
  ): Promise<IncomingMessage> => {
    const bytes =
      body === undefined
        ? undefined
        : Buffer.isBuffer(body)
          ? body
          : Buffer.from(JSON.stringify(body));
    const sent = request(`${api.url}${path}`, {
      method,
      agent,
      // Host headers of tests differ from the certificate's names; the server checks them, not TLS.
      servername: 'localhost',
      headers: {
        authorization: `Bearer ${api.token}`,
        ...(bytes === undefined
          ? {}
          : { 'content-type': 'application/json', 'content-length': bytes.length }),
        ...headers,
      },
    });
    sent.end(bytes);
    const [response] = (await once(sent, 'response')) as [IncomingMessage];
    return response;
  };
  const call = async (
    method: string,
    path: string,
    given: RequestOptions = {},
  ): Promise<Answer> => {
    const response = await send(method, path, given);
    const chunks: Buffer[] = [];
    for await (const chunk of response as AsyncIterable<Buffer>) chunks.push(chunk);
    const text = Buffer.concat(chunks).toString();
    return {
      code: response.statusCode ?? 0,
      headers: response.headers,
      text,
      body: text.startsWith('{') ? (JSON.parse(text) as Json) : null,
    };
  };
  return {
    api,
    call,
    patch: (type, path, body) =>
      call('PATCH', path, { body, headers: { 'content-type': PATCH[type] } }),
    async close() {
      agent.destroy();
      await api.close();
    },
  };
}
