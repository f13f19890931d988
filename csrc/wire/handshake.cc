#include "csrc/wire/handshake.h"

#include <algorithm>
#include <utility>

#include "csrc/wire/bytes.h"

namespace byteps {
namespace {

constexpr uint8_t kMagic[8] = {'t', 'f', 'b', 'y', 't', 'e', 'p', 's'};
constexpr size_t kFrameHeaderBytes = 16;
constexpr size_t kMaxBodyBytes = Handshake::kMaxFrameBytes - kFrameHeaderBytes;
constexpr size_t kMaxDigestBytes = 64;
constexpr size_t kMaxReasonBytes = 400;

std::string Count(uint32_t n, const std::string& what) {
  if (n == 0) return "no " + what;
  return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
}

std::string Cluster(const Hello& hello) {
  return Count(hello.num_workers, "worker") + " and " +
         Count(hello.num_servers, "dedicated server");
}

bool IsInCluster(const ProcessName& name, const Hello& hello) {
  return name.index <
         (name.role == Role::kWorker ? hello.num_workers : hello.num_servers);
}

// Text from the network that goes to a log or a terminal.
std::string Printable(std::string text) {
  if (text.size() > kMaxReasonBytes) text.resize(kMaxReasonBytes);
  for (char& c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) c = '?';
  }
  return text;
}

std::string BoundedDigest(const std::string& digest) {
  if (digest.size() <= kMaxDigestBytes) return digest;
  const Digest hash = Sha256(digest);
  return std::string(hash.begin(), hash.end());
}

void Write(const ProcessName& name, ByteWriter* writer) {
  writer->Number(static_cast<uint8_t>(name.role));
  writer->Number(name.index);
}

bool Read(ByteReader* reader, ProcessName* name) {
  uint8_t role = 0;
  if (!reader->Number(&role) || !reader->Number(&name->index)) return false;
  if (role > static_cast<uint8_t>(Role::kWorker)) return false;
  name->role = static_cast<Role>(role);
  return true;
}

std::vector<uint8_t> Encode(const Hello& hello) {
  ByteWriter writer;
  Write(hello.self, &writer);
  Write(hello.wanted, &writer);
  writer.Number(hello.num_workers);
  writer.Number(hello.num_servers);
  writer.Raw(hello.nonce.data(), hello.nonce.size());
  writer.Text(hello.cluster_digest);
  return writer.Take();
}

bool Decode(const uint8_t* body, size_t bytes, Hello* hello) {
  ByteReader reader(body, bytes);
  return Read(&reader, &hello->self) && Read(&reader, &hello->wanted) &&
         reader.Number(&hello->num_workers) &&
         reader.Number(&hello->num_servers) &&
         reader.Raw(hello->nonce.data(), hello->nonce.size()) &&
         reader.Text(&hello->cluster_digest) && reader.finished() &&
         hello->cluster_digest.size() <= kMaxDigestBytes;
}

}  // namespace

Hello MakeHello(const Config& config, const ProcessName& wanted,
                const Nonce& nonce) {
  Hello hello;
  hello.self = config.self;
  hello.wanted = wanted;
  hello.num_workers = config.num_workers();
  hello.num_servers = static_cast<uint32_t>(config.servers.size());
  hello.cluster_digest = BoundedDigest(config.cluster_digest);
  hello.nonce = nonce;
  return hello;
}

std::string Objection(const Hello& acceptor, const Hello& dialer) {
  const std::string here = ToString(acceptor.self);
  const std::string there = ToString(dialer.self);
  if (acceptor.version != dialer.version) {
    return there + " runs a tf_byteps with protocol version " +
           std::to_string(dialer.version) + ", " + here + " one with version " +
           std::to_string(acceptor.version);
  }
  if (acceptor.num_workers != dialer.num_workers ||
      acceptor.num_servers != dialer.num_servers) {
    return there + " describes a cluster of " + Cluster(dialer) + ", " + here +
           " one of " + Cluster(acceptor);
  }
  if (acceptor.cluster_digest != dialer.cluster_digest) {
    return there + " and " + here + " describe different clusters, both of " +
           Cluster(acceptor) +
           ": the addresses, their order, bandwidths or colocated_servers "
           "differ "
           "between the two";
  }
  if (!IsInCluster(dialer.self, acceptor)) {
    return there + " is not in the cluster of " + Cluster(acceptor);
  }
  if (dialer.wanted != acceptor.self) {
    return there + " looks for " + ToString(dialer.wanted) +
           ", but this address is " + here + "'s";
  }
  if (dialer.self == acceptor.self) {
    return "two processes call themselves " + here;
  }
  return std::string();
}

Handshake Handshake::Dialer(const Config& config, const ProcessName& wanted,
                            const Nonce& nonce) {
  Handshake handshake(config, true, wanted, nonce);
  handshake.Send(Frame::kHello, handshake.our_hello_);
  return handshake;
}

Handshake Handshake::Acceptor(const Config& config, const Nonce& nonce) {
  return Handshake(config, false, config.self, nonce);
}

Handshake::Handshake(const Config& config, bool dialing,
                     const ProcessName& wanted, const Nonce& nonce)
    : token_(config.job_token),
      dialing_(dialing),
      ours_(MakeHello(config, wanted, nonce)),
      our_hello_(Encode(ours_)) {}

std::vector<uint8_t> Handshake::TakeOutput() {
  return std::exchange(output_, {});
}

void Handshake::Send(Frame type, const std::vector<uint8_t>& body) {
  ByteWriter writer;
  writer.Raw(kMagic, sizeof(kMagic));
  writer.Number(kProtocolVersion);
  writer.Number(static_cast<uint16_t>(type));
  writer.Number(static_cast<uint32_t>(body.size()));
  writer.Raw(body.data(), body.size());
  const std::vector<uint8_t> frame = writer.Take();
  output_.insert(output_.end(), frame.begin(), frame.end());
}

size_t Handshake::Receive(const uint8_t* data, size_t bytes) {
  size_t used = 0;
  while (state_ == State::kWaiting && used < bytes) {
    const uint8_t* frame = data + used;
    const size_t left = bytes - used;
    const size_t magic = std::min(left, sizeof(kMagic));
    if (!std::equal(frame, frame + magic, kMagic)) {
      Break("is not a tf_byteps process");
      break;
    }
    if (left < kFrameHeaderBytes) break;
    ByteReader reader(frame + sizeof(kMagic),
                      kFrameHeaderBytes - sizeof(kMagic));
    uint16_t version = 0, type = 0;
    uint32_t body = 0;
    reader.Number(&version);
    reader.Number(&type);
    reader.Number(&body);
    if (body > kMaxBodyBytes) {
      Break("sent a greeting of " + std::to_string(body) + " bytes");
      break;
    }
    if (left < kFrameHeaderBytes + body) break;
    used += kFrameHeaderBytes + body;
    Take(version, static_cast<Frame>(type), frame + kFrameHeaderBytes, body);
  }
  return used;
}

void Handshake::Take(uint16_t version, Frame type, const uint8_t* body,
                     size_t bytes) {
  if (type == Frame::kRefusal) {
    ByteReader reader(body, bytes);
    std::string text;
    if (!reader.Text(&text)) return Break("sent a refusal without a reason");
    state_ = State::kRefused;
    reason_ = Printable(std::move(text));
    return;
  }
  if (type == Frame::kHello && !heard_hello_) {
    return TakeHello(version, body, bytes);
  }
  const Frame expected = dialing_ ? Frame::kAdmit : Frame::kProof;
  Digest proof;
  if (!heard_hello_ || version != kProtocolVersion || type != expected ||
      bytes != proof.size()) {
    return Break("sent a greeting out of order");
  }
  std::copy(body, body + bytes, proof.begin());
  if (!Equal(proof, Proof(!dialing_))) {
    return Refuse(ToString(theirs_.self) +
                  " carries another job's token than " + ToString(ours_.self));
  }
  state_ = dialing_ ? State::kDone : State::kProved;
}

void Handshake::TakeHello(uint16_t version, const uint8_t* body, size_t bytes) {
  if (version != kProtocolVersion) {
    // What else stands in the hello of another version is not ours to read.
    const std::string them = dialing_ ? ToString(ours_.wanted)
                                      : std::string("the process that dialed");
    return Refuse(them + " runs a tf_byteps with protocol version " +
                  std::to_string(version) + ", " + ToString(ours_.self) +
                  " one with version " + std::to_string(kProtocolVersion));
  }
  if (!Decode(body, bytes, &theirs_)) {
    return Break("sent a hello that cannot be read");
  }
  theirs_.version = version;
  heard_hello_ = true;
  their_hello_.assign(body, body + bytes);
  if (dialing_) {
    Hello answer = theirs_;
    if (answer.self != ours_.wanted) {
      return Refuse(ToString(ours_.self) + " looks for " +
                    ToString(ours_.wanted) + ", but this address is " +
                    ToString(answer.self) + "'s");
    }
    const Digest proof = Proof(true);
    return Send(Frame::kProof, {proof.begin(), proof.end()});
  }
  const std::string objection = Objection(ours_, theirs_);
  if (!objection.empty()) return Refuse(objection);
  Send(Frame::kHello, our_hello_);
}

void Handshake::Admit() {
  const Digest proof = Proof(false);
  Send(Frame::kAdmit, {proof.begin(), proof.end()});
  state_ = State::kDone;
}

void Handshake::Refuse(const std::string& reason) {
  state_ = State::kRefused;
  by_us_ = true;
  reason_ = Printable(reason);
  ByteWriter writer;
  writer.Text(reason_);
  Send(Frame::kRefusal, writer.Take());
}

void Handshake::Break(const std::string& reason) {
  state_ = State::kBroken;
  reason_ = reason;
}

Digest Handshake::Proof(bool of_dialer) const {
  // The first word keeps one end's proof from being played back as the other's.
  const std::vector<uint8_t>& first = dialing_ ? our_hello_ : their_hello_;
  const std::vector<uint8_t>& second = dialing_ ? their_hello_ : our_hello_;
  ByteWriter writer;
  writer.Text(of_dialer ? "dialer" : "acceptor");
  writer.Number(kProtocolVersion);
  writer.Number(static_cast<uint32_t>(first.size()));
  writer.Raw(first.data(), first.size());
  writer.Number(static_cast<uint32_t>(second.size()));
  writer.Raw(second.data(), second.size());
  const std::vector<uint8_t> text = writer.Take();
  return HmacSha256(token_, std::string(text.begin(), text.end()));
}

}  // namespace byteps
