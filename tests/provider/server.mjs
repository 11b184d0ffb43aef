// A real identity provider for the tests, on a free loopback port: `node server.mjs '{"clients": [...], "scopes": [...]}'`.
//
// Tokens are issued and signed by oidc-provider alone. What is added here: keys that can be exchanged while it runs, a grant
// that names its subject, and a few members of the token request by which a test chooses what it gets. It keeps nothing.
// Once it can be spoken to, one line {"issuer": URL} is written to standard output.
//
// Configuration: `clients` are client metadata as oidc-provider takes them; `scopes` is what any resource offers;
// `oauthMetadata: false` leaves discovery to OpenID Connect's address alone.

import { generateKeyPair, randomBytes } from 'node:crypto';
import { createServer } from 'node:http';
import { promisify } from 'node:util';

import { Provider, errors } from 'oidc-provider';

const SUBJECT_GRANT = 'urn:taskgate:test:grant-type:subject';
const DEFAULT_LIFETIME = 300; // seconds

const OAUTH_METADATA = '/.well-known/oauth-authorization-server';
const OPENID_METADATA = '/.well-known/openid-configuration';

const KEY_TYPES = [
  ['RS256', 'rsa', { modulusLength: 2048 }],
  ['ES256', 'ec', { namedCurve: 'P-256' }],
  ['EdDSA', 'ed25519', {}],
];

// What a test may say in a token request besides what OAuth knows. Other grants' parameters are stripped from
// `ctx.oidc.params`, so that these are read from the body as it came.
function wished(ctx) {
  const { lifetime, algorithm, claims, shape } = ctx.oidc.body;
  return {
    lifetime: lifetime === undefined ? DEFAULT_LIFETIME : Number(lifetime),
    algorithm: algorithm ?? 'RS256',
    claims: claims === undefined ? undefined : JSON.parse(claims),
    shape: shape === undefined ? undefined : JSON.parse(shape),
  };
}

async function newKeys() {
  const made = KEY_TYPES.map(async ([alg, type, options]) => {
    const { privateKey } = await promisify(generateKeyPair)(type, options);
    return { ...privateKey.export({ format: 'jwk' }), alg, use: 'sig' }; // its kid will be its thumbprint
  });
  return Promise.all(made);
}

function providerWith(issuer, { clients, scopes }, keys) {
  const resourceServer = (ctx) => {
    const { algorithm, lifetime } = wished(ctx);
    return {
      scope: scopes.join(' '),
      accessTokenTTL: lifetime,
      accessTokenFormat: 'jwt',
      jwt: { sign: { alg: algorithm } }, // of several keys that fit, the first is taken: the newest
    };
  };
  const provider = new Provider(issuer, {
    clients: clients.map((client) => ({
      grant_types: ['client_credentials', SUBJECT_GRANT],
      redirect_uris: [],
      response_types: [],
      ...client,
    })),
    cookies: { keys: [randomBytes(16).toString('hex')] },
    extraTokenClaims: (ctx) => wished(ctx).claims,
    formats: {
      customizers: {
        // The token of another product: its claims, and no others, and its header, but for the key and the algorithm.
        jwt: (ctx, _token, jwt) => {
          const { shape } = wished(ctx);
          if (!shape) return;
          jwt.header = { typ: shape.header.typ };
          jwt.payload = shape.claims;
        },
      },
    },
    features: {
      clientCredentials: { enabled: true },
      devInteractions: { enabled: false },
      resourceIndicators: { enabled: true, getResourceServerInfo: resourceServer },
    },
    jwks: { keys },
  });

  // Who is meant is taken on trust: a login would only make the test longer.
  async function issueForSubject(ctx, next) {
    const { subject, scope = '', resource } = ctx.oidc.params;
    if (!subject || !resource) throw new errors.InvalidRequest('subject and resource are needed');
    const token = new provider.AccessToken({
      accountId: subject,
      client: ctx.oidc.client,
      gty: SUBJECT_GRANT,
      resourceServer: new provider.ResourceServer(resource, resourceServer(ctx)),
      scope: scope.split(' ').filter((one) => scopes.includes(one)).join(' ') || undefined,
    });
    ctx.oidc.entity('AccessToken', token);
    ctx.body = { access_token: await token.save(), expires_in: token.expiration, token_type: token.tokenType };
    await next();
  }
  provider.registerGrantType(SUBJECT_GRANT, issueForSubject, ['subject', 'scope', 'resource']);
  return provider.callback();
}

const configuration = JSON.parse(process.argv[2]);
const server = createServer();
await new Promise((resolve) => { server.listen(0, '127.0.0.1', resolve); });
const issuer = `http://127.0.0.1:${server.address().port}`;

let keys = await newKeys();
let provider = providerWith(issuer, configuration, keys);

// oidc-provider reads its keys once. Another instance under the same issuer is, to whoever asks, the same provider.
const actions = {
  '/test/publish-new-keys': async () => { keys = [...(await newKeys()), ...keys]; },
  '/test/retire-old-keys': async () => { keys = keys.slice(0, KEY_TYPES.length); },
};

server.on('request', async (request, response) => {
  const action = request.method === 'POST' && actions[request.url];
  if (action) {
    await action();
    provider = providerWith(issuer, configuration, keys);
    response.writeHead(204).end();
    return;
  }
  // This release answers at OpenID Connect's address only. Newer ones give the same document at both.
  if (request.url === OAUTH_METADATA && configuration.oauthMetadata !== false) request.url = OPENID_METADATA;
  provider(request, response);
});

process.stdout.write(`${JSON.stringify({ issuer })}\n`);
